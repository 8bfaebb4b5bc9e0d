"""Lines of an upstream's server-sent events may end with LF, CRLF or CR. What is passed on has LF."""

import json

import pytest

from tests.unit.upstreams.test_message_flow import RESULT, Upstream, encode


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("chunk_bytes", [1, 2, 7, 10_000])
async def test_lines_of_events_may_end_in_each_way_of_the_specification_and_be_cut_anywhere(
    line_end: bytes, chunk_bytes: int
) -> None:
    first, second = json.dumps(RESULT).encode().split(b" ", 1)
    lines = [b": open", b"", b"id: 1", b"data: " + first, b"data: " + second, b"", b""]
    upstream, text = Upstream(), line_end.join(lines)
    upstream.chunk_bytes = chunk_bytes

    received = [event async for event in upstream.open_stream(bytes([byte]) for byte in text)]

    assert received == [b"id: 1\ndata: " + first + b"\ndata: " + second + b"\n\n"]


async def test_an_event_is_passed_on_at_the_cr_that_ends_it() -> None:
    reading = Upstream().open_stream([b"data: " + json.dumps(RESULT).encode() + b"\r\r", b"\n" * 99])

    assert await anext(aiter(reading)) == encode(RESULT)
