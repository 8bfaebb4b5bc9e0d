"""A stream of events, taken apart whatever pieces it comes in."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.client import UnexpectedAnswer
from ringback.client.server_sent import FRAME_BYTES_MAX, RETRY_SECONDS, Frame, Frames

STREAM = (
    b"retry: 1500\n\n"
    b": still here\n\n"
    b'id: a\nevent: call.finished\ndata: {"message": "\xe2\x80\xa8 \xc2\x85 \\n"}\n\n'
    b"event:truncated\r\ndata:{}\r\n\r\n"
    b"event: nothing to say\n\n"
    b"data: one\ndata\ndata: two\nunknown: x\n\n"
    b"data: never finished\n"
)
FRAMES = [
    Frame("call.finished", '{"message": "\u2028 \x85 \\n"}'),
    Frame("truncated", "{}"),
    Frame("message", "one\n\ntwo"),
]

cuts = st.lists(st.integers(0, len(STREAM)), max_size=20).map(lambda places: sorted({0, *places, len(STREAM)}))


@given(cuts=cuts)
def test_frames_are_the_same_in_whatever_pieces_they_come(cuts: list[int]) -> None:
    frames = Frames()

    found = [frame for start, end in pairwise(cuts) for frame in frames.feed(STREAM[start:end])]

    assert found == FRAMES
    assert frames.retry_seconds == 1.5


@pytest.mark.parametrize("value", [b"", b"soon", b"-1", b"1.5", b"9" * 20, "²".encode()])
def test_a_pause_that_is_no_number_is_passed_over(value: bytes) -> None:
    frames = Frames()

    assert list(frames.feed(b"retry: " + value + b"\n\n")) == []
    assert frames.retry_seconds == RETRY_SECONDS


def test_a_line_without_an_end_is_no_stream_of_events() -> None:
    frames = Frames()
    list(frames.feed(b"data: " + b"x" * (FRAME_BYTES_MAX - 6)))

    with pytest.raises(UnexpectedAnswer):
        list(frames.feed(b"x"))
