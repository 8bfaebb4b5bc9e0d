"""Entries of lists: what strict clients cannot read is left out, and nothing else."""

from typing import Any

import pytest
from mcp_types import ListToolsResult

from ringback.domain.upstreams import Listing
from ringback.upstreams.catalog.listed_entries import VALUES_MAX, repair_entry

OBJECT = {"type": "object"}
TOOL = {
    "name": "read",
    "title": "Read",
    "description": "Reads a file.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": ["string", "null"], "default": None}}},
    "outputSchema": OBJECT,
    "annotations": {"readOnlyHint": True, "vendor": [1, None]},
    "icons": [{"src": "data:image/png;base64,AAAA", "sizes": ["48x48"]}],
    "execution": {"taskSupport": "optional"},
    "_meta": {"vendor/any": list(range(2 * VALUES_MAX))},
    "vendorMember": {"any": [None] * (2 * VALUES_MAX)},
}


def repair_tool(**members: Any) -> dict[str, Any]:
    return dict(repair_entry({"name": "read", "inputSchema": OBJECT, **members}, Listing.TOOLS, key="name"))


def test_an_entry_without_a_fault_stays_as_it_is() -> None:
    assert repair_entry(TOOL, Listing.TOOLS, key="name") is TOOL


WRONG_MEMBERS: list[dict[str, Any]] = [
    {"description": 7},
    {"title": None},
    {"outputSchema": []},
    {"annotations": {"readOnlyHint": "true"}},
    {"annotations": None},
    {"icons": [{"src": "https://a.test/i.png"}, {"src": 1}]},
    {"icons": "https://a.test/i.png"},
    {"icons": [{}] * (VALUES_MAX + 1)},
    {"icons": [{"src": "a:b", "sizes": [{}] * VALUES_MAX}]},
    {"execution": {"taskSupport": "maybe"}},
    {"_meta": "text"},
]


@pytest.mark.parametrize("members", WRONG_MEMBERS)
def test_a_member_that_is_not_of_mcps_type_is_left_out(members: dict[str, Any]) -> None:
    repaired = repair_tool(description="Reads.", **members) if "description" not in members else repair_tool(**members)

    assert not members.keys() & repaired.keys()
    assert repaired.keys() >= {"name", "inputSchema"}
    ListToolsResult.model_validate({"tools": [repaired]}, strict=True)


@pytest.mark.parametrize("schema", [{}, {"properties": {"a": {}}}, {"type": ["object", "null"]}, {"type": "string"}])
def test_the_schema_of_arguments_says_that_they_are_an_object(schema: dict[str, Any]) -> None:
    assert repair_tool(inputSchema=schema)["inputSchema"] == {**schema, "type": "object"}


@pytest.mark.parametrize(
    ("listing", "key"),
    [(Listing.RESOURCES, "uri"), (Listing.RESOURCE_TEMPLATES, "uriTemplate"), (Listing.PROMPTS, "name")],
)
@pytest.mark.parametrize("wrong", [{"description": 1}, {"name": None}, {"arguments": {}}, {"size": "8"}], ids=str)
def test_resources_and_prompts_are_repaired_too_and_have_a_name(
    listing: Listing, key: str, wrong: dict[str, Any]
) -> None:
    repaired = repair_entry({**wrong, key: "notes://1"}, listing, key=key)

    assert repaired[key] == repaired["name"] == "notes://1"
    assert "description" not in repaired


def test_event_types_are_not_changed() -> None:
    event_type = {"name": "a.b", "description": None}
    assert repair_entry(event_type, Listing.EVENTS, key="name") is event_type
