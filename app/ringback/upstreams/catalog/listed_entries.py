"""Makes listed entries readable for strict clients.

Clients check a list as a whole: one member that is not of MCP's type makes them refuse all entries, and at `/mcp` those of all
upstreams. So such members are left out, nulls too, which TypeScript's SDK does not take for absent ones. An entry without a
fault stays as it is.
"""

from collections.abc import Mapping
from typing import Any, Final, cast

from mcp_types import Prompt, Resource, ResourceTemplate, Tool
from pydantic import BaseModel, ValidationError

from ringback.domain.upstreams import Listing

_MODEL_BY_LISTING: Final[Mapping[Listing, type[BaseModel]]] = {
    Listing.TOOLS: Tool,
    Listing.RESOURCES: Resource,
    Listing.RESOURCE_TEMPLATES: ResourceTemplate,
    Listing.PROMPTS: Prompt,
}


_ANY_CONTENT: Final = frozenset({"inputSchema", "outputSchema", "_meta"})
"""Members whose content the models do not check."""
_MEMBERS: Final = {
    listing: frozenset(field.alias or name for name, field in model.model_fields.items())
    for listing, model in _MODEL_BY_LISTING.items()
}
"""What MCP says of an entry. Other members are left as they are."""
VALUES_MAX: Final = 1_000
"""JSON values in one of these members: pydantic describes each wrong one, which takes 2 µs."""


def repair_entry(entry: Mapping[str, Any], listing: Listing, *, key: str) -> Mapping[str, Any]:
    """The entry itself, or one without what clients could not read. `key` is the member that identifies it, a text."""
    model = _MODEL_BY_LISTING.get(listing)
    if model is None:
        return entry  # event types have checks of their own
    known = {name: value for name, value in entry.items() if name in _MEMBERS[listing]}
    wrong = {name for name, value in known.items() if value is None or _has_too_many_values(name, value)}
    wrong |= _find_wrong_members({name: value for name, value in known.items() if name not in wrong}, model)
    repaired = {name: value for name, value in entry.items() if name not in wrong}
    repaired.setdefault("name", entry[key])  # resources did not always have one
    if listing is Listing.TOOLS:
        repaired["inputSchema"] = _describe_object(repaired["inputSchema"])
    return entry if repaired == entry else repaired


def _find_wrong_members(entry: Mapping[str, Any], model: type[BaseModel]) -> frozenset[str]:
    try:
        model.model_validate(entry, strict=True)
    except ValidationError as error:
        return frozenset(str(each["loc"][0]) for each in error.errors(include_url=False, include_input=False))
    return frozenset()


def _has_too_many_values(name: str, value: Any) -> bool:
    waiting, count = [value] if name not in _ANY_CONTENT else [], 0
    while waiting and count <= VALUES_MAX:
        each = waiting.pop()
        if isinstance(each, dict):
            each = list(cast("dict[str, Any]", each).values())
        if isinstance(each, list):
            members = cast("list[Any]", each)
            count += len(members)
            waiting.extend(members[: VALUES_MAX + 1])
    return count > VALUES_MAX


def _describe_object(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Arguments are an object, and clients demand that their schema says so at its root."""
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}
