"""Following the event log over one connection, and reconnecting after the last event."""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

import httpx
import pytest
import respx

from ringback.client import ConnectionFailed, Event, InvalidRequest, QuotaExceeded, RingbackClient, UnexpectedAnswer
from ringback.schemas import examples
from tests.support.clock import FakeClock
from tests.support.mocked_requests import list_requests, parse_query

STREAM = "/v1/events/stream"
PROBLEM_JSON = {"content-type": "application/problem+json"}
TRUNCATED = b'event: truncated\ndata: {"truncated":true}\n\n'
BROKEN = httpx.ReadError("broken")
IDLE_STREAM = httpx.ReadTimeout("silent")
UNAVAILABLE = httpx.Response(503, json={}, headers=PROBLEM_JSON | {"retry-after": "5"})
FULL = httpx.Response(429, json={}, headers=PROBLEM_JSON | {"retry-after": "20"})


def frame(cursor: str) -> bytes:
    return f"id: {cursor}\nevent: call.finished\ndata: {json.dumps({**examples.EVENT, 'cursor': cursor})}\n\n".encode()


def answer(*pieces: bytes | httpx.TransportError) -> httpx.Response:
    """A stream of these chunks, which may break between them."""

    async def body() -> AsyncIterator[bytes]:
        yield b"retry: 1000\n\n"
        for piece in pieces:
            if isinstance(piece, httpx.TransportError):
                raise piece
            yield piece

    return httpx.Response(200, headers={"content-type": "text/event-stream; charset=utf-8"}, content=body())


async def first(stream: AsyncGenerator[Event], count: int) -> list[str | None]:
    async with aclosing(stream) as events:
        return [(await anext(events)).cursor for _ in range(count)]


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
    told: list[bool] = []

    assert await first(client.stream_events(cursor="old", on_truncated=lambda: told.append(True)), 1) == ["a"]
    assert told == [True]


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (httpx.ConnectError("refused"), ConnectionFailed),
        (FULL, QuotaExceeded),
        (httpx.Response(422, json={}, headers=PROBLEM_JSON), InvalidRequest),
        (httpx.Response(200, html="<h1>Welcome</h1>"), UnexpectedAnswer),
        (answer(b"data: {}\n\n"), UnexpectedAnswer),
    ],
    ids=["nobody", "full", "wrong", "a page", "no event"],
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
