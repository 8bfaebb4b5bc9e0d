"""The client parses server-sent events independently of the chunks, and rejects lines and events without an end."""

from collections.abc import AsyncIterator, Sequence
from itertools import pairwise

import anyio
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.client import UnexpectedAnswer
from ringback.client.server_sent_events import (
    EVENT_BYTES_MAX,
    LINE_BYTES_MAX,
    RECONNECT_SECONDS_DEFAULT,
    RECONNECT_SECONDS_LIMIT,
    ServerSentEvent,
    ServerSentEvents,
)

STREAM = (
    b"retry: 1500\n\n"
    b": still here\n\n"
    b'id: a\nevent: call.finished\ndata: {"message": "\xe2\x80\xa8 \xc2\x85 \\n"}\n\n'
    b"event:truncated\r\ndata:{}\r\n\r\n"
    b"event: without data\n\n"
    b"id: b\n: only an id\n\n"
    b"data: one\ndata\ndata: two\nunknown: x\n\n"
    b"data: never finished\n"
)
EVENTS = [
    ServerSentEvent("call.finished", '{"message": "\u2028 \x85 \\n"}', "a"),
    ServerSentEvent("truncated", "{}", "a"),
    ServerSentEvent("message", "", "b"),
    ServerSentEvent("message", "one\n\ntwo", "b"),
]

cuts = st.lists(st.integers(0, len(STREAM)), max_size=20).map(lambda places: sorted({0, *places, len(STREAM)}))


class Chunks(httpx.AsyncByteStream):
    def __init__(self, chunks: Sequence[bytes]) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


def read(*chunks: bytes) -> tuple[list[ServerSentEvent], float]:
    """The events of a response with this body, and its reconnect pause."""

    async def run() -> tuple[list[ServerSentEvent], float]:
        response = httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Chunks(chunks))
        stream = ServerSentEvents(response)
        return [event async for event in stream.iterate_events()], stream.retry_seconds

    return anyio.run(run)


@given(cuts=cuts)
def test_events_do_not_depend_on_how_the_stream_is_chunked(cuts: list[int]) -> None:
    pieces = [STREAM[start:end] for start, end in pairwise(cuts)]

    assert read(*pieces) == (EVENTS, 1.5)


@pytest.mark.parametrize("value", [b"", b"soon", b"1.5", "²".encode()])
def test_a_retry_that_is_not_a_number_is_ignored(value: bytes) -> None:
    assert read(b"retry: " + value + b"\n\n") == ([], RECONNECT_SECONDS_DEFAULT)


@pytest.mark.parametrize(("value", "seconds"), [(b"-1", 0.0), (b"9" * 20, RECONNECT_SECONDS_LIMIT)])
def test_a_retry_is_kept_within_bounds(value: bytes, seconds: float) -> None:
    assert read(b"retry: " + value + b"\n\n") == ([], seconds)


def test_a_line_as_long_as_allowed_is_read() -> None:
    start, rest = b"data: ", b"x" * (LINE_BYTES_MAX - 6)

    ((event,), _) = read(start, rest, b"\n\n")

    assert len(event.data) == LINE_BYTES_MAX - 6


def test_a_line_without_an_end_is_rejected() -> None:
    with pytest.raises(UnexpectedAnswer):
        read(b"data: " + b"x" * (LINE_BYTES_MAX - 6), b"x")


def test_an_event_without_an_end_is_rejected() -> None:
    line = b"data: " + b"x" * 65_536 + b"\n"

    with pytest.raises(UnexpectedAnswer):
        read(*[line] * (EVENT_BYTES_MAX // len(line) + 1))


def test_any_number_of_events_is_read_from_one_stream() -> None:
    event = b"data: " + b"x" * 65_536 + b"\r\n\r\n"

    events, _ = read(*[piece for _ in range(64) for piece in (event[:-2], event[-2:])])

    assert len(events) == 64
