"""The boundaries of requests: unambiguous, or rejected."""

import pytest

from ringback.services.limits.unread_responses import IS_CONNECTED
from tests.unit.http_server.conftest import App, ConnectionHarness, run_loop_turns

POST = b"POST / HTTP/1.1\r\nhost: x\r\n"


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(POST + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", id="two lengths"),
        pytest.param(
            POST + b"transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n", id="two lengths, turned"
        ),
        pytest.param(POST + b"content-length: 5\r\ncontent-length: 6\r\n\r\nhello!", id="lengths that differ"),
        pytest.param(POST + b"content-length: -5\r\n\r\n", id="a negative length"),
        pytest.param(POST + b"content-length: +5\r\n\r\nhello", id="a length with a sign"),
        pytest.param(POST + b"content-length: 99999999999999999999999\r\n\r\n", id="a length beyond numbers"),
        pytest.param(POST + b"transfer-encoding: chunked, gzip\r\n\r\n0\r\n\r\n", id="chunked is not the last"),
        pytest.param(POST + b"transfer-encoding: chunked\r\n\r\nZZ\r\n", id="a chunk's size is no number"),
        pytest.param(POST + b"content-length : 5\r\n\r\nhello", id="a space before the colon"),
        pytest.param(
            b"POST / HTTP/1.0\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", id="chunks in HTTP/1.0"
        ),
        pytest.param(b"GET / HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n", id="two hosts"),
        pytest.param(b"GET / HTTP/1.1\r\nhost: x\r\n folded: y\r\n\r\n", id="a folded line"),
        pytest.param(b"GET / HTTP/1.1\nhost: x\n\n", id="lines without a carriage return"),
        pytest.param(b"GET / HTTP/2.0\r\nhost: x\r\n\r\n", id="another version"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="HTTP/2"),
        pytest.param(b"GET /\r\n\r\n", id="HTTP/0.9"),
        pytest.param(b"CONNECT x:443 HTTP/1.1\r\nhost: x:443\r\n\r\n", id="a tunnel"),
        pytest.param(b"GET http://x HTTP/1.1\r\nhost: x\r\n\r\n", id="a URL without a path"),
        pytest.param(b"GET /\xff HTTP/1.1\r\nhost: x\r\n\r\n", id="a path that is not ASCII"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS"),
        pytest.param(b"GET / HTTP/1.1\r\nhost: x\r\na\x00b: c\r\n\r\n", id="a control character in a name"),
    ],
)
async def test_an_ambiguous_request_is_rejected(bench: ConnectionHarness, app: App, request_bytes: bytes) -> None:
    protocol, peer = bench.connect()
    protocol.data_received(request_bytes)
    await run_loop_turns()
    assert (peer.statuses, peer.ended, app.bodies) == ([400], "closed", [])
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await run_loop_turns()
    assert (peer.statuses, app.bodies) == ([400], [])


async def test_a_body_that_breaks_off_in_nonsense_ends_its_request(bench: ConnectionHarness, app: App) -> None:
    protocol, peer = bench.connect()
    protocol.data_received(POST + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
    await run_loop_turns()
    protocol.data_received(b"nonsense\r\n")
    await run_loop_turns()
    assert (peer.statuses, peer.ended, app.disconnects) == ([400], "closed", 1)


async def test_a_malformed_body_in_the_pipeline_does_not_affect_the_response_before_it(
    bench: ConnectionHarness, app: App
) -> None:
    app.answering.clear()
    protocol, peer = bench.connect()
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" + POST + b"transfer-encoding: chunked\r\n\r\nZZ\r\n")
    app.answering.set()
    await run_loop_turns()
    assert (peer.statuses, peer.ended, len(app.scopes)) == ([200], "closed", 1)


async def test_a_client_that_vanishes_behind_a_pipelined_request_is_missed_by_the_one_that_is_served(
    bench: ConnectionHarness, app: App
) -> None:
    protocol, _ = bench.connect()
    protocol.data_received(POST + b"content-length: 5\r\n\r\n")
    await run_loop_turns()
    protocol.data_received(b"hello" + POST + b"content-length: 5\r\n\r\n")
    app.answering.clear()
    bench.lose_connection(protocol)
    await run_loop_turns()
    assert app.disconnects == 1
    app.answering.set()


async def test_the_application_sees_a_disconnect_without_a_turn_of_the_event_loop(
    bench: ConnectionHarness, app: App
) -> None:
    app.answering.clear()
    protocol, _ = bench.connect()
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    await run_loop_turns()
    is_connected = app.scopes[0]["state"][IS_CONNECTED]
    assert is_connected()

    bench.lose_connection(protocol)

    assert not is_connected()
    app.answering.set()


async def test_trailers_are_not_headers(bench: ConnectionHarness, app: App) -> None:
    protocol, peer = bench.connect()
    trailer = b"0\r\nauthorization: Bearer rbk_stolen\r\n\r\n"
    protocol.data_received(POST + b"transfer-encoding: chunked\r\n\r\n" + trailer)
    await run_loop_turns()
    assert peer.statuses == [200]
    assert [name for name, _ in app.scopes[0]["headers"]] == [b"host", b"transfer-encoding"]


async def test_an_offer_of_another_protocol_is_passed_over(
    bench: ConnectionHarness, app: App, caplog: pytest.LogCaptureFixture
) -> None:
    """As in the first request of Java's HTTP client; uvicorn would not respond to the second one."""
    protocol, peer = bench.connect()
    offer = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
    for _ in range(2):
        protocol.data_received(POST + offer + b"content-length: 5\r\n\r\nhello")
        await run_loop_turns()
    protocol.data_received(b"GET / HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n" * 2)
    await run_loop_turns(40)
    assert (peer.statuses, peer.ended) == ([200] * 4, None)
    assert app.bodies == [b"hello", b"hello", b"", b""]
    assert caplog.records == []


async def test_an_absolute_url_is_served_as_its_path(bench: ConnectionHarness, app: App) -> None:
    protocol, peer = bench.connect()
    protocol.data_received(b"GET http://x/v1/calls?a=b HTTP/1.1\r\nhost: x\r\n\r\n")
    await run_loop_turns()
    assert (peer.statuses, app.scopes[0]["path"], app.scopes[0]["query_string"]) == ([200], "/v1/calls", b"a=b")


async def test_after_http_1_0_and_after_the_last_request_nothing_is_read(bench: ConnectionHarness, app: App) -> None:
    for first in (b"GET / HTTP/1.0\r\nhost: x\r\n\r\n", b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"):
        protocol, peer = bench.connect()
        protocol.data_received(first + b"GET /second HTTP/1.1\r\nhost: x\r\n\r\n")
        await run_loop_turns()
        assert (peer.statuses, peer.ended) == ([200], "closed")
    assert [scope["path"] for scope in app.scopes] == ["/", "/"]


async def test_a_client_that_waits_for_100_continue_gets_it_once(bench: ConnectionHarness, app: App) -> None:
    protocol, peer = bench.connect()
    protocol.data_received(POST + b"expect: 100-continue\r\ncontent-length: 5\r\n\r\n")
    await run_loop_turns()
    assert (peer.statuses, peer.ended) == ([100], None)
    protocol.data_received(b"hello")
    await run_loop_turns()
    assert (peer.statuses, peer.ended, app.bodies) == ([100, 200], None, [b"hello"])


async def test_a_body_that_was_held_back_and_is_not_wanted_ends_the_connection(
    bench: ConnectionHarness, app: App
) -> None:
    """The next bytes could be the body or the next request."""
    app.reads = False
    protocol, peer = bench.connect()
    protocol.data_received(POST + b"expect: 100-continue\r\ncontent-length: 5\r\n\r\n")
    await run_loop_turns()
    assert (peer.statuses, peer.ended) == ([200], "closed")
