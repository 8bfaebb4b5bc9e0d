"""The deadlines of a connection's phases, and the states without one. The test advances the clock."""

import asyncio
from collections.abc import Callable

import pytest
from starlette.types import Receive, Scope, Send

from ringback.http_server import HttpLimits
from ringback.http_server.connections import EXPIRED_IN_TURN
from tests.unit.http_server.conftest import App, ConnectionHarness, run_loop_turns

LIMITS = HttpLimits()
GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100000\r\n\r\n"
DAY = 86_400.0


async def test_headers_sent_byte_by_byte_have_one_deadline(bench: ConnectionHarness) -> None:
    protocol, peer = bench.connect()
    for number in range(15):
        protocol.data_received(GET[number : number + 1])
        bench.pass_time(0.99)
        assert peer.ended is None
    bench.pass_time(1)
    assert (peer.statuses, peer.ended) == ([408], "closed")


async def test_a_silent_connection_is_closed_without_a_response(bench: ConnectionHarness) -> None:
    _, peer = bench.connect()
    bench.pass_time(LIMITS.headers_seconds)
    assert (peer.sent, peer.ended) == (b"", "closed")


async def test_between_two_requests_there_is_time_and_for_the_next_ones_headers_again(bench: ConnectionHarness) -> None:
    protocol, peer = bench.connect()
    for _ in range(3):
        protocol.data_received(GET)
        await run_loop_turns()
        bench.pass_time(LIMITS.keep_alive_seconds - 1)
        assert peer.ended is None
    protocol.data_received(GET[:5])
    bench.pass_time(LIMITS.headers_seconds - 1)
    assert peer.ended is None
    protocol.data_received(GET[5:])
    await run_loop_turns()
    assert peer.statuses == [200] * 4
    bench.pass_time(LIMITS.keep_alive_seconds)
    assert (peer.statuses, peer.ended) == ([200] * 4, "closed")


async def test_a_body_that_stops_coming_is_408_and_its_request_ends(bench: ConnectionHarness, app: App) -> None:
    protocol, peer = bench.connect()
    protocol.data_received(POST)
    for _ in range(5):
        protocol.data_received(b"b" * LIMITS.progress_bytes)
        await run_loop_turns()
        bench.pass_time(LIMITS.body_seconds - 1)
        assert peer.ended is None
    bench.pass_time(1)
    await run_loop_turns()
    assert (peer.statuses, peer.ended, app.disconnects) == ([408], "closed", 1)


async def test_a_body_of_one_byte_now_and_then_is_not_progress(bench: ConnectionHarness) -> None:
    protocol, peer = bench.connect()
    protocol.data_received(POST)
    for _ in range(6):
        await run_loop_turns()
        bench.pass_time(LIMITS.body_seconds / 6)
        if peer.ended is None:
            protocol.data_received(b"b")
    assert (peer.statuses, peer.ended) == ([408], "closed")


async def test_a_chunks_extension_that_trickles_is_not_progress(bench: ConnectionHarness) -> None:
    protocol, peer = bench.connect()
    protocol.data_received(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5;a=")
    for _ in range(6):
        await run_loop_turns()
        protocol.data_received(b"e" * 5_000)
        bench.pass_time(LIMITS.body_seconds / 6)
    assert (peer.statuses, peer.ended) == ([408], "closed")


async def test_a_client_that_waits_for_100_continue_is_not_late(bench: ConnectionHarness, app: App) -> None:
    app.reads = False
    app.answering.clear()
    protocol, peer = bench.connect()
    protocol.data_received(POST.replace(b"\r\n\r\n", b"\r\nexpect: 100-continue\r\n\r\n"))
    await run_loop_turns()
    for _ in range(3):
        bench.pass_time(LIMITS.body_seconds)
    assert (peer.statuses, peer.ended) == ([], None)
    app.answering.set()


async def test_the_rest_of_a_body_is_read_for_a_while_after_the_response(bench: ConnectionHarness, app: App) -> None:
    """A client that writes everything before it reads gets its 413 or 401, and its next request is served."""
    app.reads = False
    protocol, peer = bench.connect()
    for _ in range(2):
        protocol.data_received(POST)
        await run_loop_turns()
        bench.pass_time(LIMITS.rest_of_body_seconds - 1)
        protocol.data_received(b"b" * 100_000)
    assert (peer.statuses, peer.ended) == ([200, 200], None)
    protocol.data_received(POST)
    await run_loop_turns()
    for _ in range(11):
        protocol.data_received(b"b" * 5_000)
        bench.pass_time(LIMITS.rest_of_body_seconds / 10)
    assert (peer.statuses, peer.ended) == ([200] * 3, "closed")


async def test_a_request_that_is_served_and_a_stream_that_is_idle_have_no_deadline(
    bench: ConnectionHarness, app: App
) -> None:
    app.answering.clear()
    protocol, peer = bench.connect()
    protocol.data_received(GET)
    await run_loop_turns()
    for _ in range(10):
        bench.pass_time(DAY)
    assert peer.ended is None
    app.answering.set()
    await run_loop_turns()
    assert peer.statuses == [200]


async def test_half_a_request_behind_one_that_is_served_does_not_cut_it(bench: ConnectionHarness, app: App) -> None:
    app.answering.clear()
    protocol, peer = bench.connect()
    protocol.data_received(GET + GET[:5])
    await run_loop_turns()
    bench.pass_time(LIMITS.headers_seconds)
    assert (peer.statuses, peer.ended, peer.reading) == ([], None, False)
    app.answering.set()
    await run_loop_turns()
    assert (peer.statuses, peer.ended) == ([200], "closed")


async def test_a_peer_that_does_not_read_its_response_is_disconnected(bench: ConnectionHarness) -> None:
    protocol, peer = bench.connect()
    peer.reads = False
    protocol.data_received(GET)
    await run_loop_turns()
    bench.pass_time(1)
    bench.pass_time(LIMITS.write_seconds - 1)
    assert peer.ended is None
    bench.pass_time(LIMITS.write_seconds)
    assert peer.ended == "aborted"
    assert bench.connections.rejection_counts["answer_not_read"] == 1


async def test_a_closed_connection_whose_last_bytes_are_unread_is_aborted(bench: ConnectionHarness) -> None:
    """A closed transport waits without limit until its output is sent."""
    protocol, peer = bench.connect()
    peer.reads = False
    protocol.data_received(b"NONSENSE\r\n\r\n")
    assert peer.ended == "closed"
    for _ in range(10):
        bench.pass_time(LIMITS.write_seconds / 4)
    assert peer.ended == "aborted"


async def test_a_peer_that_reads_slowly_is_not_disconnected(
    make_bench: Callable[..., ConnectionHarness], app: App
) -> None:
    bench = make_bench()
    streams: list[Send] = []

    async def stream(_scope: Scope, _receive: Receive, send: Send) -> None:
        streams.append(send)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await app.answering.wait()

    app.answering.clear()
    bench.app = stream  # type: ignore[assignment]
    protocol, peer = bench.connect()
    protocol.data_received(GET)
    await run_loop_turns()
    peer.reads = False
    for _ in range(100):
        await streams[0]({"type": "http.response.body", "body": b"e" * LIMITS.progress_bytes, "more_body": True})
        peer.waiting = 5_000  # as much as before: what it reads is what was written
        bench.pass_time(LIMITS.write_seconds / 2)
        assert peer.ended is None
    for _ in range(10):
        await streams[0]({"type": "http.response.body", "body": b": ping\n\n", "more_body": True})
        bench.pass_time(LIMITS.write_seconds / 4)
    assert peer.ended == "aborted"  # heartbeats that pile up are not progress
    app.answering.set()
    bench.lose_connection(protocol)
    await run_loop_turns()


@pytest.mark.parametrize("count", [1_000])
async def test_a_sweep_visits_only_expired_connections(
    make_bench: Callable[..., ConnectionHarness], count: int
) -> None:
    bench = make_bench(peer_connections_max=2 * count, write_seconds=1e9)
    bench.connections.close_expired()
    peers = [bench.connect()[1] for _ in range(count)]
    looks = 0

    def looked(_self: object) -> int:
        nonlocal looks
        looks += 1
        return 0

    for peer in peers:
        peer.get_write_buffer_size = looked.__get__(peer)  # type: ignore[method-assign]
    bench.pass_time(1)
    assert looks == 0
    assert all(peer.ended is None for peer in peers)
    bench.pass_time(LIMITS.headers_seconds)
    await run_loop_turns(count // EXPIRED_IN_TURN)
    assert all(peer.ended == "closed" for peer in peers)


async def test_connections_whose_time_is_over_together_end_a_few_in_each_turn_of_the_event_loop(
    bench: ConnectionHarness,
) -> None:
    peers = [bench.connect()[1] for _ in range(5 * EXPIRED_IN_TURN)]
    bench.pass_time(LIMITS.headers_seconds)
    for turn in range(1, 6):
        assert sum(peer.ended is not None for peer in peers) == turn * EXPIRED_IN_TURN
        await asyncio.sleep(0)
