"""One answer, read from bytes: what is an answer, how far it is read, and after which the connection may be used again."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.notifier.http.failures import InvalidResponse
from ringback.notifier.http.response_reader import (
    INFORMATIONAL_RESPONSES_MAX,
    RESPONSE_HEADER_BYTES_MAX,
    ResponseReader,
    TooManyInformationalResponses,
)
from ringback.notifier.http.sender import BODY_PREFIX_BYTES_MAX, RESPONSE_BODY_BYTES_MAX
from tests.support.receivers import NO_CONTENT, response

EARLY_HINTS_RESPONSE = b"HTTP/1.1 103 Early Hints\r\nretry-after: 99\r\nlink: </a>; rel=preload\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
PERSISTENT = [
    NO_CONTENT,
    response("200 OK", b"hello"),
    response("503 Busy", b"later\r\n", retry_after="7"),
    response("304 Not Modified"),
    b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n",
    b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n",
    b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 2\r\n\r\nok",
    CHUNKED + b"5\r\nhello\r\n0\r\n\r\n",
    CHUNKED + b"5;a=b\r\nhello\r\n1\r\n!\r\n0\r\nretry-after: 5\r\nx-trailer: 1\r\n\r\n",
    EARLY_HINTS_RESPONSE + b"HTTP/1.1 100 Continue\r\n\r\n" + response("410 Gone", b"gone"),
    b"HTTP/1.1 429 Slow Down\r\nx-empty:\r\nRetry-After: 3\r\nretry-after: 4\r\ncontent-length: 0\r\n\r\n",
]
ENDING = [
    response("200 OK", b"bye", connection="close"),
    b"HTTP/1.1 200 OK\r\n\r\nuntil the end",
    b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nuntil the end",
    CHUNKED + b"0\r\nconnection: close\r\n\r\n",
    CHUNKED + b"2\r\nok\r\nthis is no chunk\r\n",
]


@dataclass(frozen=True)
class ParsedResponse:
    status_code: int
    retry_after: str | None
    head: bytes
    exact: bool


def parse_response(*packets: bytes) -> ParsedResponse:
    """What is known after these packets."""
    reader = ResponseReader()
    for packet in packets:
        reader.feed_data(packet)
    return ParsedResponse(reader.status_code, reader.retry_after, bytes(reader.body_prefix), reader.is_cleanly_framed)


def split_packets(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = sorted({cut % (len(data) + 1) for cut in cuts} | {0, len(data)})
    return [data[start:end] for start, end in pairwise(places)]


@given(st.sampled_from(PERSISTENT + ENDING), st.lists(st.integers(0, 1000)))
def test_how_an_answer_is_cut_into_packets_changes_nothing(data: bytes, cuts: list[int]) -> None:
    assert parse_response(*split_packets(data, cuts)) == parse_response(data)


@pytest.mark.parametrize("data", PERSISTENT + ENDING)
def test_an_answer_may_come_byte_by_byte(data: bytes) -> None:
    assert parse_response(*split_packets(data, range(len(data)))) == parse_response(data)
    assert parse_response(data).exact == (data in PERSISTENT)


@given(st.sampled_from(PERSISTENT), st.binary(min_size=1) | st.sampled_from([*PERSISTENT, b"\n", b"\r\n", b"\r\n\r\n"]))
def test_anything_behind_an_answer_spoils_the_connection_and_never_the_answer(data: bytes, behind: bytes) -> None:
    alone = parse_response(data)

    assert alone.exact
    for followed in (parse_response(data + behind), parse_response(data, behind)):
        assert followed == replace(alone, exact=False)


def test_one_reader_reads_one_answer_after_the_other() -> None:
    reader = ResponseReader()
    for data in PERSISTENT * 2:
        reader.reset()
        reader.feed_data(data)
        assert ParsedResponse(
            reader.status_code, reader.retry_after, bytes(reader.body_prefix), reader.is_cleanly_framed
        ) == parse_response(data)


@pytest.mark.parametrize(
    ("data", "retry_after"),
    [
        (PERSISTENT[2], "7"),
        (PERSISTENT[-3], None),  # in a trailer
        (PERSISTENT[-2], None),  # in an informational answer
        (PERSISTENT[-1], "3"),  # the first of two, behind an empty header
    ],
)
def test_retry_after_is_the_final_heads_first(data: bytes, retry_after: str | None) -> None:
    assert parse_response(data).retry_after == retry_after


@pytest.mark.parametrize(
    "garbage",
    [
        b"\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"RTSP/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"ICE/1.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/0.9 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/2.0 200 OK\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x80\0\x04\0\x01\0\0\0\x05\0\xff\xff\xff",  # SETTINGS of HTTP/2
        b"<html>an answer of HTTP/0.9</html>",
        b"GET / HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 000 Nothing\r\n\r\n",
        b"HTTP/1.1 099 Nothing\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 600 Nothing\r\n\r\n",
        b"HTTP/1.1 999 Nothing\r\n\r\n",
        b"HTTP/1.1 200 OK\ncontent-length: 0\n\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1, 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\na",
        b"HTTP/1.1 200 OK\r\ncontent-length : 1\r\n\r\na",
        b"HTTP/1.1 200 OK\r\nx: folded\r\n over\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: \0\r\ncontent-length: 0\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nconnection: close\r\n\r\n" + NO_CONTENT,
    ],
    ids=lambda garbage: repr(garbage[:60]),
)
def test_bytes_that_are_no_http_1_response_are_refused(garbage: bytes) -> None:
    for packets in ([garbage], split_packets(garbage, range(len(garbage)))):
        with pytest.raises(InvalidResponse):
            parse_response(*packets)


@pytest.mark.parametrize("packet_bytes", [1 << 20, 5000])
@pytest.mark.parametrize(("surplus", "accepted"), [(0, True), (1, False)])
def test_a_head_is_read_up_to_its_limit(*, packet_bytes: int, surplus: int, accepted: bool) -> None:
    frame = b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\nx: %s\r\n\r\n"
    data = frame % (b"a" * (RESPONSE_HEADER_BYTES_MAX - len(frame) + 2 + surplus)) + b"some body"
    packets = [data[start : start + packet_bytes] for start in range(0, len(data), packet_bytes)]

    if accepted:
        assert parse_response(*packets) == ParsedResponse(200, None, b"some body", exact=True)
    else:
        with pytest.raises(InvalidResponse, match="65536 bytes"):
            parse_response(*packets)


def test_informational_answers_count_towards_the_limit_of_the_head() -> None:
    hint = b"HTTP/1.1 103 Early Hints\r\nlink: %s\r\n\r\n" % (b"a" * (RESPONSE_HEADER_BYTES_MAX // 4))

    with pytest.raises(InvalidResponse, match="65536 bytes"):
        parse_response(*[hint] * 4)


def test_informational_answers_are_passed_over_up_to_a_limit() -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\n\r\n" * INFORMATIONAL_RESPONSES_MAX

    assert parse_response(hints + NO_CONTENT).status_code == 204
    with pytest.raises(TooManyInformationalResponses):
        parse_response(hints + hints)


@pytest.mark.parametrize("packet_bytes", [1, 1 << 20])
@pytest.mark.parametrize(
    "wire",
    [b"1\r\na\r\n", b"1;" + b"e" * 1000 + b"\r\na\r\n", b"0\r\nx: " + b"t" * 200_000],
    ids=["", "padded", "trailer"],
)
def test_a_body_is_read_up_to_a_limit_of_bytes_on_the_wire(packet_bytes: int, wire: bytes) -> None:
    """Chunks, their extensions and trailers can be endless where the body itself has hardly a byte."""
    limit, reader = RESPONSE_HEADER_BYTES_MAX + RESPONSE_BODY_BYTES_MAX, ResponseReader()
    data = CHUNKED + wire * (limit // len(wire) + 1)
    fed = 0
    while not reader.is_complete:
        reader.feed_data(data[fed : fed + packet_bytes])
        fed += packet_bytes

    assert (reader.status_code, reader.is_cleanly_framed) == (200, False)
    assert fed < limit + packet_bytes
    assert bytes(reader.body_prefix) == b"a" * min(len(reader.body_prefix), BODY_PREFIX_BYTES_MAX)


@given(
    st.lists(
        st.binary(max_size=30)
        | st.sampled_from(
            [
                *PERSISTENT,
                *ENDING,
                b"HTTP/1.1 ",
                b"200 OK\r\n",
                b"\r\n",
                b"content-length: 3\r\n",
                CHUNKED,
                b"3\r\n",
                b"0\r\n",
            ]
        ),
        max_size=8,
    ),
    st.lists(st.integers(0, 1000), max_size=5),
)
def test_no_bytes_are_more_than_an_answer_or_none(pieces: list[bytes], cuts: list[int]) -> None:
    try:
        known = parse_response(*split_packets(b"".join(pieces), cuts))
    except InvalidResponse:
        return
    assert known.status_code == 0 or 200 <= known.status_code <= 599
    assert not (known.exact and known.status_code == 0)
