"""Which parts of an upstream's result the service passes on."""

from typing import Any

from ringback.domain.tool_result import is_call_tool_result, repair_result


def test_a_result_in_which_null_stands_for_nothing_is_a_result_without_it() -> None:
    answer: dict[str, Any] = {"content": [], "_meta": None, "isError": None, "structuredContent": None}
    assert repair_result(answer) == {"content": [], "structuredContent": None}
    assert is_call_tool_result(repair_result(answer))
    assert not is_call_tool_result(repair_result({"content": [], "isError": "no"}))
