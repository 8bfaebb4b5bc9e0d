"""How a direct target's response to a call is read."""

from typing import Any

import pytest

from ringback.client.durable.direct.completions import completion_from_failure, completion_from_result
from ringback.protocol.errors import UpstreamError


def test_a_result_with_structured_content_alone_is_a_result() -> None:
    completion = completion_from_result({"structuredContent": {"price": 7}})

    assert (completion.outcome, completion.result) == ("result", {"structuredContent": {"price": 7}, "content": []})


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_have_is_no_result_and_no_error_of_the_server(number: float) -> None:
    """The state would have null in its place: the join in this process and a later one would differ."""
    error: dict[str, Any] = {"code": -32000, "message": "no", "data": {"load": number}}

    result = completion_from_result({"content": [], "structuredContent": {"load": number}})
    failure = completion_from_failure(UpstreamError(error))

    assert result.error is not None
    assert (result.outcome, result.result) == ("upstream_error", None)
    assert "has run" in result.error["message"]
    assert failure.error is not None
    assert (failure.outcome, "data" in failure.error, failure.error["code"]) == ("upstream_error", True, -32603)


def test_a_result_without_any_content_is_none() -> None:
    assert completion_from_result({"structuredContent": None}).outcome == "upstream_error"
