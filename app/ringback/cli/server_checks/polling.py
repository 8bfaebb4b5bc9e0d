"""What a run observes of events/poll: each function is one observation, made once."""

import asyncio
from dataclasses import dataclass
from typing import Any, Final, cast

from ringback.cli.server_checks.cases import Untestable, Violation
from ringback.cli.server_checks.message_stream import Json, Reply
from ringback.cli.server_checks.subject import ABSENT, OfferedEventType, ServerUnderTest, list_modes

POLL: Final = "events/poll"
PAUSE_SECONDS_MAX: Final = 0.5
"""Between two polls while an event is awaited, whatever `nextPollMs` says: a run is short."""
BACKLOG_EVENTS: Final = 3
"""Events that the cases about batches need."""
PAGES_MAX: Final = 50


async def poll(server: ServerUnderTest, event: OfferedEventType, cursor: Any, **params: Any) -> Reply:
    return await server.request(POLL, {"name": event.name, "arguments": event.arguments, "cursor": cursor, **params})


def occurrences_in(reply: Reply) -> list[Json]:
    events = reply.result.get("events")
    return (
        [cast("Json", each) for each in cast("list[Any]", events) if isinstance(each, dict)]
        if isinstance(events, list)
        else []
    )


def require_page(reply: Reply) -> Reply:
    if not reply.has_result:
        raise Violation(f"{POLL} answered {reply.describe()}")
    return reply


async def pollable(server: ServerUnderTest) -> OfferedEventType:
    return await server.choose_type("poll")


async def poll_from_now(server: ServerUnderTest) -> Reply:
    """The first poll of a run: a null cursor."""
    return require_page(await poll(server, await server.require(pollable), None))


async def poll_without_cursor(server: ServerUnderTest) -> Reply:
    return await poll(server, await server.require(pollable), ABSENT)


async def read_position(server: ServerUnderTest) -> str:
    """A cursor from now. Raises `Untestable` if the event type gives none."""
    cursor = require_page(await poll(server, await server.require(pollable), None)).result.get("cursor")
    if not isinstance(cursor, str):
        raise Untestable("this event type gives no cursor")
    return cursor


async def poll_again(server: ServerUnderTest) -> Reply:
    """A poll from a cursor behind which nothing has happened yet."""
    return await poll(server, await server.require(pollable), await read_position(server))


async def poll_unknown_cursor(server: ServerUnderTest) -> Reply:
    return await poll(server, await server.require(pollable), "ringback-check-no-such-cursor")


async def require_occurrence(server: ServerUnderTest, event: OfferedEventType, cursor: object) -> None:
    """Raise `Untestable` if a poll shows that no such event has happened since the cursor: then none can be delivered."""
    if isinstance(cursor, str) and "poll" in list_modes(event.descriptor):
        reply = await poll(server, event, cursor)
        if reply.has_result and not occurrences_in(reply):
            raise Untestable(
                f"a poll shows that no {event.name} happened: does the emitted event have another --event?"
            )


@dataclass(frozen=True, slots=True)
class PolledEvents:
    before: str
    """The cursor from before the events."""
    replies: list[Reply]
    """The polls until the events were there; the last one has them."""
    occurrences: list[Json]
    after: Any
    """The cursor behind them."""


async def polled_event(server: ServerUnderTest) -> PolledEvents:
    """One event, made to happen and polled for."""
    return await _poll_for_events(server, 1)


async def polled_backlog(server: ServerUnderTest) -> PolledEvents:
    """Several events behind one cursor."""
    found = await _poll_for_events(server, BACKLOG_EVENTS)
    if len(found.occurrences) < 2:  # noqa: PLR2004 - a batch of one has an end only if there are two
        raise Untestable(f"{BACKLOG_EVENTS} emissions gave {len(found.occurrences)} events of this type")
    return found


async def _poll_for_events(server: ServerUnderTest, count: int) -> PolledEvents:
    event = await server.require(pollable)
    await server.require(poll_from_now)
    before = await read_position(server)
    for _ in range(count):
        await server.emitter.emit()
    cursor: Any = before
    replies: list[Reply] = []
    occurrences: list[Json] = []
    loop = asyncio.get_running_loop()
    deadline = loop.time() + server.timeouts.event_seconds
    while len(occurrences) < count and loop.time() < deadline:
        reply = require_page(await poll(server, event, cursor))
        replies.append(reply)
        occurrences += occurrences_in(reply)
        cursor = reply.result.get("cursor")
        if not reply.result.get("hasMore") and len(occurrences) < count:
            await asyncio.sleep(PAUSE_SECONDS_MAX if replies[1:] else 0)
    if not occurrences:
        raise Untestable(f"no {event.name} came within {server.timeouts.event_seconds:.0f} s after it was to happen")
    return PolledEvents(before, replies, occurrences, cursor)


async def backlog_pages(server: ServerUnderTest) -> list[Reply]:
    """The same backlog, one event a page."""
    backlog = await server.require(polled_backlog)
    event = await server.require(pollable)
    pages: list[Reply] = []
    cursor: Any = backlog.before
    while len(pages) < PAGES_MAX:
        pages.append(require_page(await poll(server, event, cursor, maxEvents=1)))
        cursor = pages[-1].result.get("cursor")
        if pages[-1].result.get("hasMore") is not True:
            break
    return pages
