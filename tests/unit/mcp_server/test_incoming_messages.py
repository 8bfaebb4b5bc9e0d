"""Which media types the Accept header of an MCP client accepts."""

import pytest

from ringback.mcp_server.incoming_messages import accepts


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("*/*", (True, True)),
        ("application/*, text/*;q=0.1", (True, True)),
        ("Application/JSON ; q=1, text/event-stream;q=0.001", (True, True)),
        ("application/json, text/event-stream;charset=utf-8", (True, True)),
        ("*/*;q=0, application/json", (True, False)),
        ("application/json;q=0, */*", (False, True)),
        ("application/json; Q=0.000, text/event-stream", (False, True)),
        ("text/*;q=0, text/event-stream", (False, True)),
        ("application/jsonx, text/event-streams", (False, False)),
        ("*/*; q=0.0", (False, False)),
        ("", (False, False)),
        ("*/*," + "a/b," * 500, (False, False)),
    ],
)
def test_the_most_specific_range_with_a_weight_above_zero_accepts(accept: str, expected: tuple[bool, bool]) -> None:
    assert (accepts(accept, "application/json"), accepts(accept, "text/event-stream")) == expected
