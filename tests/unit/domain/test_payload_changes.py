"""Which changes of a schema of events are more than additions."""

from typing import Any

import pytest

from ringback.domain.payload_changes import find_incompatible_change

ORDER: dict[str, Any] = {
    "type": "object",
    "properties": {"amount": {"type": "integer"}, "lines": {"items": {"properties": {"sku": {"type": "string"}}}}},
    "required": ["amount"],
}


def change(**changed: Any) -> dict[str, Any]:
    return {**ORDER, **changed}


def change_property(name: str, schema: Any) -> dict[str, Any]:
    return change(properties={**ORDER["properties"], name: schema})


@pytest.mark.parametrize(
    "newer",
    [
        ORDER,
        change(description="An order.", title="Order", **{"$defs": {"new": True}}),
        change_property("note", {"type": "string"}),
        change_property("lines", {"items": {"properties": {"sku": {"type": "string"}, "count": {}}}}),
    ],
)
def test_annotations_and_more_properties_are_additions(newer: dict[str, Any]) -> None:
    assert find_incompatible_change(ORDER, newer) is None


@pytest.mark.parametrize(
    ("newer", "said"),
    [
        (change_property("amount", {"type": "string"}), "#/properties/amount: 'type' changes"),
        (change_property("amount", {"type": "integer", "minimum": 1}), "#/properties/amount: 'minimum' changes"),
        (change_property("amount", schema=True), "#/properties/amount: the schema changes"),
        (change(required=["amount", "lines"]), "#: 'lines' is now required"),
        (change(required=None), "#: 'amount' is no longer required"),
        (change(properties={"amount": {"type": "integer"}}), "#: 'lines' is no longer there"),
        (change_property("lines", {}), "#/properties/lines: 'items' changes"),
        (change_property("lines", {"items": {}}), "#/properties/lines/items: 'sku' is no longer there"),
        (change(additionalProperties=False), "#: 'additionalProperties' changes"),
        ({"type": "object"}, "#: 'amount' is no longer there"),
    ],
)
def test_the_first_other_change_is_named(newer: dict[str, Any], said: str) -> None:
    assert find_incompatible_change(ORDER, newer) == said
