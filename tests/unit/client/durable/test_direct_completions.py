"""How a direct target's response to a call is read."""

from ringback.client.durable.direct.completions import completion_from_result


def test_a_result_with_structured_content_alone_is_a_result() -> None:
    completion = completion_from_result({"structuredContent": {"price": 7}})

    assert (completion.outcome, completion.result) == ("result", {"structuredContent": {"price": 7}, "content": []})


def test_a_result_without_any_content_is_none() -> None:
    assert completion_from_result({"structuredContent": None}).outcome == "upstream_error"
