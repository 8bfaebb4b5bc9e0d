"""Prints the OpenAPI document, with the same bytes for the same code: `python -m ringback.api.openapi_export`.

With the argument `callbacks` it prints a document of the callbacks alone, from which scripts/openapi generates
openapi/callbacks.ts.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any, Final, cast

from ringback.api.app import create_documented_app

CALLBACK_SCHEMAS: Final = ("CallbackBody", "PublishedCallback", "ControlEnvelope", "VerificationAnswer")
_SCHEMA_PREFIX: Final = "#/components/schemas/"


def render_document() -> str:
    return _render(create_documented_app().openapi())


def render_callbacks_document(document: dict[str, Any]) -> str:
    return _render(select_callbacks(document))


def select_callbacks(document: dict[str, Any]) -> dict[str, Any]:
    """The document without operations, and with the schemas of callbacks only."""
    schemas: dict[str, Any] = document["components"]["schemas"]
    selected: dict[str, Any] = {}
    missing = list(CALLBACK_SCHEMAS)
    while missing:
        name = missing.pop()
        selected[name] = _without_comments(schemas[name])
        missing += [found for found in _list_references(selected[name]) if found not in selected]
    return {
        "openapi": document["openapi"],
        "info": {"title": "Callbacks of Ringback", "version": "1"},
        "paths": {},
        "components": {"schemas": selected},
    }


def _without_comments(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without examples, and without titles, which repeat the names of the members."""
    members = {
        name: {key: value for key, value in member.items() if key != "title"}
        for name, member in schema.get("properties", {}).items()
    }
    kept = {key: value for key, value in schema.items() if key not in {"examples", "title"}}
    return {**kept, "properties": members} if members else kept


def _list_references(value: object) -> Iterator[str]:
    """The names of the schemas to which this part of a document refers."""
    if isinstance(value, dict):
        for key, member in cast("dict[str, object]", value).items():
            if key == "$ref" and isinstance(member, str):
                yield member.removeprefix(_SCHEMA_PREFIX)
            else:
                yield from _list_references(member)
    elif isinstance(value, list):
        for member in cast("list[object]", value):
            yield from _list_references(member)


def _render(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(
        render_callbacks_document(create_documented_app().openapi())
        if sys.argv[1:] == ["callbacks"]
        else render_document()
    )
