"""The limits on what an unauthenticated peer sends, and the problem documents of rejections."""

import json
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import repeat

import pytest

from ringback.http_server import BoundedHttpProtocol, HttpLimits
from tests.unit.http_server.conftest import App, ConnectionHarness, FakeTransport, run_loop_turns

HEAD = b"GET / HTTP/1.1\r\nhost: x\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
LIMITS = HttpLimits()
KEPT_BYTES_MAX = 1_000_000
"""The memory for a flooding peer. Limits, a slice, a read and some objects together take a fifth of it."""


def problem(peer: FakeTransport) -> str:
    head, _, body = peer.sent.rpartition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert b"content-type: application/problem+json" in head
    assert peer.ended == "closed"
    document = json.loads(body)
    assert document["status"] == peer.statuses[-1]
    return str(document["type"]).removeprefix("/problems/")


def flood(protocol: BoundedHttpProtocol, start: bytes, piece: bytes, count: int = 1_000) -> int:
    """Send endlessly at full speed, and return the largest number of kept bytes."""
    tracemalloc.start()
    try:
        protocol.data_received(start)
        for part in repeat(piece, count):
            protocol.data_received(part)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def test_a_url_and_headers_at_their_limits_are_served(bench: ConnectionHarness) -> None:
    protocol, peer = bench.connect()
    headers = b"".join(b"x-%d: %b\r\n" % (number, b"v" * 400) for number in range(LIMITS.headers_max - 1))
    protocol.data_received(b"GET /%b HTTP/1.1\r\nhost: x\r\n%b\r\n" % (b"a" * (LIMITS.url_bytes_max - 1), headers))
    await run_loop_turns()
    assert (peer.statuses, peer.ended) == ([200], None)


async def test_a_longer_url_is_414_and_the_connection_is_closed(bench: ConnectionHarness, app: App) -> None:
    protocol, peer = bench.connect()
    protocol.data_received(b"GET /%b HTTP/1.1\r\nhost: x\r\n\r\n" % (b"a" * LIMITS.url_bytes_max))
    assert (peer.statuses, problem(peer)) == ([414], "url-too-long")
    await run_loop_turns()
    assert app.scopes == []


@pytest.mark.parametrize(
    ("start", "piece", "status"),
    [
        pytest.param(b"GET /", b"a" * 65_536, 414, id="a URL without end"),
        pytest.param(HEAD, b"x" * 65_536, 431, id="a header's name without end"),
        pytest.param(HEAD + b"x: ", b"v" * 65_536, 431, id="a header's value without end"),
        pytest.param(HEAD, b"a: b\r\n" * 10_000, 431, id="tiny headers without end"),
        pytest.param(b"", b"\r\n" * 32_768, 431, id="empty lines without end"),
        pytest.param(CHUNKED + b"1;a=", b"e" * 65_536, 431, id="a chunk's extension without end"),
        pytest.param(CHUNKED + b"0\r\nx: ", b"v" * 65_536, 431, id="a trailer without end"),
        pytest.param(CHUNKED + b"0\r\n", b"a: b\r\n" * 10_000, 431, id="tiny trailers without end"),
    ],
)
async def test_endless_input_is_rejected_before_it_is_buffered(
    bench: ConnectionHarness, start: bytes, piece: bytes, status: int
) -> None:
    protocol, peer = bench.connect()
    assert flood(protocol, start, piece) < KEPT_BYTES_MAX
    assert peer.statuses == [status]
    assert problem(peer) == {414: "url-too-long", 431: "headers-too-large"}[status]


@pytest.mark.parametrize("step", [1, 7, 1460])
async def test_headers_sent_in_small_pieces_meet_the_same_limit(bench: ConnectionHarness, step: int) -> None:
    protocol, peer = bench.connect()
    sent = HEAD + b"x: " + b"v" * LIMITS.headers_bytes_max + b"\r\n\r\n"
    for place in range(0, len(sent), step):
        protocol.data_received(sent[place : place + step])
    assert (peer.statuses, problem(peer)) == ([431], "headers-too-large")


async def test_a_flood_of_pipelined_requests_is_kept_only_up_to_a_few(bench: ConnectionHarness, app: App) -> None:
    app.answering.clear()
    protocol, peer = bench.connect()
    assert flood(protocol, HEAD + b"\r\n", (HEAD + b"\r\n") * 10_000, count=50) < 2 * KEPT_BYTES_MAX
    assert not peer.reading
    app.answering.set()
    await run_loop_turns(200)
    assert (len(app.scopes), peer.ended) == (1 + LIMITS.pipelined_max, "closed")
    assert peer.statuses == [200] * len(app.scopes)
    assert peer.sent.count(b"connection: close") == 1


async def test_an_unread_body_stays_in_the_network_buffers(bench: ConnectionHarness, app: App) -> None:
    app.reads = False
    app.answering.clear()
    protocol, peer = bench.connect()
    protocol.data_received(b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 10000000\r\n\r\n")
    await run_loop_turns()
    pieces = iter(_while(peer, 200))
    received = sum(len(protocol.data_received(piece) or piece) for piece in pieces)
    assert received <= 131_072
    bench.pass_time(LIMITS.body_seconds + 1)
    assert (peer.statuses, peer.ended) == ([], None)  # the peer may not send, so it is not late


def _while(peer: FakeTransport, count: int) -> Iterator[bytes]:
    for _ in range(count):
        if not peer.reading:
            return
        yield b"b" * 16_384


async def test_a_rejection_waits_for_the_responses_before_it(bench: ConnectionHarness, app: App) -> None:
    app.answering.clear()
    protocol, peer = bench.connect()
    protocol.data_received(HEAD + b"\r\n" + b"GET /" + b"a" * 20_000)
    await run_loop_turns()
    assert (peer.statuses, peer.ended) == ([], None)
    app.answering.set()
    await run_loop_turns()
    assert (peer.statuses, peer.ended) == ([200], "closed")


async def test_rejections_are_counted_and_logged_in_one_line(
    make_bench: Callable[..., ConnectionHarness], caplog: pytest.LogCaptureFixture
) -> None:
    bench = make_bench(peer_connections_max=10_000)
    for _ in range(100):
        bench.connect()[0].data_received(b"GET /" + b"a" * 20_000)
        bench.connect()[0].data_received(b"NONSENSE\r\n\r\n")
        bench.pass_time(0.01)
    bench.pass_time(10)
    assert bench.connections.rejection_counts == {"url_too_long": 100, "malformed_request": 100}
    lines = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.getMessage() for record in lines] == ["http.connections_limited"] * 2
    assert sum(record.__dict__["url_too_long"] for record in lines) == 100
