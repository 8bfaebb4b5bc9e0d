"""Keywords in a form of another draft: upstreams write schemas that name no dialect, or a wrong one."""

from typing import Any

import pytest

from ringback.upstreams.catalog.argument_validation import ArgumentValidator


def errors(schema: Any, arguments: dict[str, Any]) -> list[dict[str, str]]:
    return ArgumentValidator(schema, upstream="git", tool="log").find_errors(arguments)


def schema_of_path(**rule: Any) -> dict[str, Any]:
    return {"properties": {"path": rule}}


@pytest.mark.parametrize("draft", ["draft-04", "draft-06", "draft-07", "draft/2019-09", "draft/2020-12"])
def test_a_boolean_that_excludes_a_limit_has_the_meaning_of_draft_4_in_all_drafts(draft: str) -> None:
    path = {"minimum": 0, "exclusiveMinimum": True, "maximum": 9, "exclusiveMaximum": True}
    scheme = "http" if draft.startswith("draft-") else "https"
    of_draft = {"$schema": f"{scheme}://json-schema.org/{draft}/schema"}

    assert [errors({**schema_of_path(**path), **of_draft}, {"path": each}) for each in (1, 0.5, 8.5)] == [[]] * 3
    for value in (0, 9):
        assert errors({**schema_of_path(**path), **of_draft}, {"path": value}) != []
        inclusive = {**path, "exclusiveMinimum": False, "exclusiveMaximum": False}
        assert errors({**schema_of_path(**inclusive), **of_draft}, {"path": value}) == []
    alone = schema_of_path(exclusiveMinimum=True, exclusiveMaximum=True)
    assert [errors({**alone, **of_draft}, {"path": each}) for each in (-7, 0, 1, 7)] == [[]] * 4


def test_a_number_that_excludes_a_limit_has_no_meaning_in_draft_4() -> None:
    schema = schema_of_path(minimum=0, exclusiveMinimum=-5, maximum=9, exclusiveMaximum=10)

    assert errors({"$schema": "http://json-schema.org/draft-04/schema#", **schema}, {"path": 0}) == []
    assert errors({"$schema": "http://json-schema.org/draft-04/schema#", **schema}, {"path": 9}) == []


@pytest.mark.parametrize("dialect", ["", "https://json-schema.org/draft/2020-12/schema"])
def test_a_list_of_items_has_a_schema_for_each_place_in_2020_12_too(dialect: str) -> None:
    schema = {"$schema": dialect, **schema_of_path(items=[{"type": "string"}, True])}

    assert errors(schema, {"path": ["a", 1, 2]}) == []
    assert errors(schema, {"path": [1]})[0]["pointer"] == "#/arguments/path/0"


def test_a_recursive_reference_to_a_resource_whose_id_has_a_fragment_is_followed() -> None:
    of_path = {"$id": "https://example.com/node#here", "items": {"$recursiveRef": "#"}, "type": ["array", "integer"]}
    schema = {"$schema": "https://json-schema.org/draft/2019-09/schema", "properties": {"path": of_path}}

    assert errors(schema, {"path": [[1]]}) == []
    assert errors(schema, {"path": [["x"]]}) != []
