"""What of an upstream's answer goes on to whoever reads it."""

from typing import Any

import pytest

from ringback.domain.results import is_call_tool_result, without_nulls, without_reserved_meta


@pytest.mark.parametrize("meta", [None, [], "odd", {"io.modelcontextprotocol/serverInfo": {}}])
def test_meta_in_which_nothing_is_left_or_that_is_no_object_is_left_out(meta: Any) -> None:
    assert without_reserved_meta({"contents": [], "_meta": meta}) == {"contents": []}


def test_everything_else_in_meta_stays() -> None:
    answer: dict[str, Any] = {"contents": [], "_meta": {"ui": None, "io.modelcontextprotocol/serverInfo": {}}}
    assert without_reserved_meta(answer) == {"contents": [], "_meta": {"ui": None}}
    assert without_reserved_meta({"contents": []}) == {"contents": []}


def test_a_result_in_which_null_stands_for_nothing_is_a_result_without_it() -> None:
    answer: dict[str, Any] = {"content": [], "_meta": None, "isError": None, "structuredContent": None}
    assert without_nulls(answer) == {"content": [], "structuredContent": None}
    assert is_call_tool_result(without_nulls(answer))
    assert not is_call_tool_result(without_nulls({"content": [], "isError": "no"}))
