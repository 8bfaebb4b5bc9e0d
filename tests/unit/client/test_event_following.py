"""Following the event log over one connection, and reconnecting after the last event."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest
import respx

from ringback.client import (
    ConnectionFailed,
    EventStream,
    InvalidRequest,
    QuotaExceeded,
    RingbackClient,
    Unauthenticated,
    UnexpectedAnswer,
)
from ringback.schemas import examples
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS
from tests.support.mocked_requests import list_requests, parse_query

STREAM = "/v1/events/stream"
PROBLEM_JSON = {"content-type": "application/problem+json"}
TRUNCATED = b'event: truncated\ndata: {"truncated":true}\n\n'
BROKEN = httpx.ReadError("broken")
IDLE_STREAM = httpx.ReadTimeout("silent")
UNAVAILABLE = httpx.Response(503, json={}, headers=PROBLEM_JSON | {"retry-after": "5"})
FULL = httpx.Response(429, json={}, headers=PROBLEM_JSON | {"retry-after": "20"})


def frame(cursor: str, *, event_id: str | None = None) -> bytes:
    event = {**examples.EVENT, "eventId": event_id or f"evt_{cursor}", "cursor": cursor}
    return f"id: {cursor}\nevent: call.finished\ndata: {json.dumps(event)}\n\n".encode()


def heartbeat(cursor: str) -> bytes:
    return f"id: {cursor}\n: still here\n\n".encode()


def answer(*pieces: bytes | httpx.TransportError) -> httpx.Response:
    """A stream of these chunks, which may break between them."""

    async def body() -> AsyncIterator[bytes]:
        yield b"retry: 1000\n\n"
        for piece in pieces:
            if isinstance(piece, httpx.TransportError):
                raise piece
            yield piece

    return httpx.Response(200, headers={"content-type": "text/event-stream; charset=utf-8"}, content=body())


async def first(stream: EventStream, count: int) -> list[str | None]:
    async with stream:
        return [(await anext(stream)).cursor for _ in range(count)]


def answer_and_fall_silent(is_silent: asyncio.Event) -> httpx.Response:
    """A stream of one event, which then neither sends nor ends."""

    async def body() -> AsyncIterator[bytes]:
        yield frame("a")
        is_silent.set()
        await asyncio.Event().wait()

    return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=body())


def list_cursors(route: respx.Route) -> list[str | None]:
    """The Last-Event-ID of each connection."""
    return [request.headers.get("last-event-id") for request in list_requests(route)]


async def test_events_arrive_as_they_are_sent(client: RingbackClient, service: respx.MockRouter) -> None:
    route = service.get(STREAM).mock(return_value=answer(frame("a") + frame("b")[:10], frame("b")[10:]))

    found = await first(client.stream_events(name="call.finished", client_session_id="s1"), 2)

    (request,) = list_requests(route)
    assert found == ["a", "b"]
    assert parse_query(request) == {"name": "call.finished", "client_session_id": "s1"}
    assert request.headers["accept"] == "text/event-stream"
    assert request.extensions["timeout"]["read"] == 45


@pytest.mark.parametrize(
    ("failures", "waited"),
    [
        ((), 1),
        ((BROKEN,), 2),
        ((IDLE_STREAM,), 2),
        ((UNAVAILABLE,), 1 + 5),
        ((FULL,), 1 + 20),
        ((BROKEN, BROKEN), 2 + 4),
    ],
    ids=["ended", "broken", "silent", "unavailable", "full", "broken twice"],
)
async def test_a_stream_is_taken_up_where_it_was(
    client: RingbackClient,
    service: respx.MockRouter,
    clock: FakeClock,
    failures: tuple[httpx.Response | httpx.TransportError, ...],
    waited: float,
) -> None:
    breaks = [failure for failure in failures[:1] if isinstance(failure, httpx.TransportError)]
    between = failures[1:] if breaks else failures
    route = service.get(STREAM)
    route.side_effect = [answer(frame("a"), *breaks), *between, answer(frame("b"))]

    found = await first(client.stream_events(cursor="start"), 2)

    assert found == ["a", "b"]
    assert list_cursors(route) == ["start", *["a"] * (len(between) + 1)]
    assert clock.monotonic() == waited


async def test_retries_against_an_unreachable_service_end(
    client: RingbackClient, service: respx.MockRouter, clock: FakeClock
) -> None:
    route = service.get(STREAM)
    route.side_effect = [answer(frame("a")), *[httpx.ConnectError("refused")] * 10, answer(frame("b"))]

    assert await first(client.stream_events(), 2) == ["a", "b"]
    assert clock.monotonic() == 1 + 2 + 4 + 8 + 16 + 6 * 30


async def test_an_expired_cursor_is_raised_and_not_yielded_as_an_event(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    service.get(STREAM).mock(return_value=answer(TRUNCATED, frame("a")))
    truncations: list[bool] = []

    assert await first(client.stream_events(cursor="old", on_truncated=lambda: truncations.append(True)), 1) == ["a"]
    assert truncations == [True]


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (httpx.ConnectError("refused"), ConnectionFailed),
        (FULL, QuotaExceeded),
        (httpx.Response(422, json={}, headers=PROBLEM_JSON), InvalidRequest),
        (httpx.Response(200, html="<h1>Welcome</h1>"), UnexpectedAnswer),
        (answer(b"data: {}\n\n"), UnexpectedAnswer),
    ],
    ids=["no response", "full", "wrong", "a page", "no event"],
)
async def test_an_error_of_the_first_connection_is_raised(
    client: RingbackClient, service: respx.MockRouter, failure: httpx.Response | Exception, kind: type[Exception]
) -> None:
    service.get(STREAM).mock(side_effect=[failure])

    with pytest.raises(kind):
        await first(client.stream_events(), 1)


async def test_a_permanent_error_is_raised_on_a_later_connection_too(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    route = service.get(STREAM)
    route.side_effect = [answer(), httpx.Response(401, json={"detail": "revoked"}, headers=PROBLEM_JSON)]

    with pytest.raises(Exception, match="revoked"):
        await first(client.stream_events(), 1)


async def test_an_event_that_is_invalid_ends_a_later_connection_too(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    service.get(STREAM).side_effect = [answer(frame("a")), answer(b"data: {}\n\n")]

    with pytest.raises(UnexpectedAnswer, match="invalid event"):
        await first(client.stream_events(), 2)


BAD_GATEWAY = httpx.Response(502, html="<h1>Bad gateway</h1>")


@pytest.mark.parametrize(
    "failure",
    [
        BAD_GATEWAY,
        httpx.Response(504),
        httpx.Response(521, html="Web server is down"),
        httpx.Response(404, text="404 page not found"),
        httpx.Response(200, html="<h1>Back soon</h1>"),
    ],
    ids=["bad gateway", "gateway timeout", "web server is down", "not found", "a page"],
)
async def test_a_proxy_whose_service_restarts_does_not_end_a_stream(
    client: RingbackClient, service: respx.MockRouter, failure: httpx.Response
) -> None:
    service.get(STREAM).side_effect = [answer(frame("a")), failure, answer(frame("b"))]

    assert await first(client.stream_events(), 2) == ["a", "b"]


async def test_a_service_that_breaks_every_stream_is_asked_ever_more_rarely(
    client: RingbackClient, service: respx.MockRouter, clock: FakeClock
) -> None:
    broken = httpx.Response(200, headers={"content-type": "text/event-stream"}, content=b"")
    broken_streams = [httpx.ReadError("broken")] * 3
    service.get(STREAM).side_effect = [broken, *broken_streams, answer(frame("a"))]

    assert await first(client.stream_events(), 1) == ["a"]
    assert clock.monotonic() == 2 + 2 + 4 + 8


async def test_a_stream_without_matching_events_still_continues_from_the_end_of_the_log(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    route = service.get(STREAM)
    route.side_effect = [answer(frame("a"), heartbeat("c"), BROKEN), answer(heartbeat("d"), frame("e"))]
    stream = client.stream_events(client_session_id="rare")

    assert await first(stream, 2) == ["a", "e"]
    assert list_cursors(route) == [None, "c"]
    assert stream.cursor == "e"


async def test_a_stream_knows_the_place_up_to_which_it_has_returned_events(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    service.get(STREAM).mock(return_value=answer(frame("a"), heartbeat("b"), frame("c")))

    async with client.stream_events(cursor="start") as stream:
        places = [stream.cursor]
        for _ in range(2):
            await anext(stream)
            places.append(stream.cursor)

    assert places == ["start", "a", "c"]


async def test_events_that_a_restored_backup_repeats_are_returned_once(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    service.get(STREAM).side_effect = [
        answer(frame("a"), frame("b"), BROKEN),
        answer(TRUNCATED, frame("a2", event_id="evt_a"), frame("b2", event_id="evt_b"), frame("c2")),
    ]
    stream = client.stream_events()

    assert not stream.is_truncated
    assert await first(stream, 3) == ["a", "b", "c2"]
    assert stream.is_truncated


async def test_memory_for_repeated_events_is_bounded(
    client: RingbackClient, service: respx.MockRouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.client.event_stream.RECENT_EVENTS_MAX", 2)
    names = ("a", "b", "c", "a", "c")
    service.get(STREAM).mock(return_value=answer(*(frame(name) for name in names)))

    assert await first(client.stream_events(), 4) == ["a", "b", "c", "a"]


async def test_a_closed_stream_ends_its_iteration(client: RingbackClient, service: respx.MockRouter) -> None:
    service.get(STREAM).mock(return_value=answer(frame("a"), frame("b")))

    async with client.stream_events() as stream:
        seen = [event.cursor async for event in stream if await stream.aclose() is None]

    assert seen == ["a"]


async def test_a_stream_continues_after_a_cancelled_wait_for_its_next_event(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    is_waiting = asyncio.Event()
    route = service.get(STREAM)
    route.side_effect = [answer_and_fall_silent(is_waiting), UNAVAILABLE, answer(frame("b"))]

    async with asyncio.timeout(WAIT_SECONDS), client.stream_events() as stream:
        assert (await anext(stream)).cursor == "a"
        waiting = asyncio.ensure_future(anext(stream))
        await is_waiting.wait()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

        assert (await anext(stream)).cursor == "b"

    assert list_cursors(route) == [None, "a", "a"]


async def test_a_stream_whose_connection_failed_can_be_read_again(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    revoked = httpx.Response(401, json={"detail": "revoked"}, headers=PROBLEM_JSON)
    route = service.get(STREAM)
    route.side_effect = [httpx.ConnectError("refused"), answer(frame("a")), revoked, answer(frame("b"))]

    async with client.stream_events(cursor="start") as stream:
        with pytest.raises(ConnectionFailed):
            await anext(stream)
        assert (await anext(stream)).cursor == "a"
        with pytest.raises(Unauthenticated):
            await anext(stream)
        assert (await anext(stream)).cursor == "b"

    assert list_cursors(route) == ["start", "start", "a", "a"]


async def test_a_stream_whose_truncation_could_not_be_handled_can_be_read_again(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    service.get(STREAM).side_effect = [answer(TRUNCATED, frame("a")), answer(TRUNCATED, frame("a"))]
    failures = [OSError("disk full")]

    def note_truncation() -> None:
        if failures:
            raise failures.pop()

    async with client.stream_events(cursor="old", on_truncated=note_truncation) as stream:
        with pytest.raises(OSError, match="disk full"):
            await anext(stream)

        assert (await anext(stream)).cursor == "a"


async def test_a_stream_that_is_closed_while_a_task_reads_it_ends_there(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    is_waiting = asyncio.Event()
    service.get(STREAM).mock(return_value=answer_and_fall_silent(is_waiting))
    stream = client.stream_events()

    async def read_all() -> tuple[list[str | None], int]:
        cursors = [event.cursor async for event in stream]
        task = asyncio.current_task()
        assert task is not None
        return cursors, task.cancelling()

    async with asyncio.timeout(WAIT_SECONDS):
        reading = asyncio.create_task(read_all())
        await is_waiting.wait()
        await stream.aclose()

        assert await reading == (["a"], 0)


async def test_a_reader_that_is_cancelled_beside_the_end_of_its_stream_is_cancelled(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    is_waiting = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b": hello\n\n"
        is_waiting.set()
        await asyncio.Event().wait()

    service.get(STREAM).respond(200, headers={"content-type": "text/event-stream"}, content=body())
    stream = client.stream_events()

    async with asyncio.timeout(WAIT_SECONDS):
        reading = asyncio.ensure_future(anext(stream))
        await is_waiting.wait()
        reading.cancel()
        await stream.aclose()

        with pytest.raises(asyncio.CancelledError):
            await reading


async def test_a_stream_that_was_closed_during_a_wait_stays_closed(
    client: RingbackClient, service: respx.MockRouter
) -> None:
    service.get(STREAM).mock(return_value=answer(frame("a"), frame("b")))

    stream = client.stream_events()
    await anext(stream)
    await stream.aclose()

    with pytest.raises(StopAsyncIteration):
        await anext(stream)
