"""Cursors, `maxAgeMs` and `truncated`."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from ringback.cli.check_report import CheckLevel
from ringback.cli.server_checks.cases import Chapter, Untestable, expect
from ringback.cli.server_checks.message_stream import Reply
from ringback.cli.server_checks.polling import (
    occurrences_in,
    poll,
    poll_again,
    poll_from_now,
    poll_unknown_cursor,
    poll_without_cursor,
    pollable,
    polled_event,
)
from ringback.cli.server_checks.subject import ABSENT, ServerUnderTest

CHAPTER: Final = Chapter("cursors")
_SOURCE: Final = "Events (SEP-3415), Cursors"
AGE_SECONDS: Final = 0.05
"""An event is at least this old when a poll with `maxAgeMs: 1` is to leave it out."""
HOUR_MILLISECONDS: Final = 3_600_000


@CHAPTER.must(
    "cursor-null-starts-from-now", "A poll with a null cursor replays nothing", f"{_SOURCE}: null means from now on"
)
async def check_null(server: ServerUnderTest) -> str:
    await _make_history(server)
    reply = await poll(server, await server.require(pollable), None)
    expect(not occurrences_in(reply), f"{len(occurrences_in(reply))} events for a null cursor")
    return "no events"


@CHAPTER.must(
    "cursor-absent-equals-null", "An absent cursor is the same as null", f"{_SOURCE}: absent and null are the same"
)
async def check_absent(server: ServerUnderTest) -> str:
    reply = await server.observe(poll_without_cursor)
    expect(reply.has_result, reply.describe())
    expect(not occurrences_in(reply), f"{len(occurrences_in(reply))} events without a cursor")
    return "a result without events"


@CHAPTER.must(
    "cursor-opaque",
    "A cursor is a non-empty string, or null for a type without replay",
    f"{_SOURCE}: the server defines it, clients return it unchanged",
)
async def check_opaque(server: ServerUnderTest) -> str:
    cursors = await _list_cursors(server)
    expect(all(each is None or (isinstance(each, str) and each) for each in cursors), f"cursors: {cursors}")
    return f"{len(cursors)} cursors"


@CHAPTER.should(
    "cursor-consistency", "A type gives a cursor always or never", f"{_SOURCE}: replay is consistent for a type"
)
async def check_consistency(server: ServerUnderTest) -> str:
    cursors = await _list_cursors(server)
    expect(len({isinstance(each, str) for each in cursors}) == 1, f"cursors: {cursors}")
    return f"{len(cursors)} cursors"


@CHAPTER.must(
    "cursor-advances-when-quiet",
    "A poll without events gives a cursor too",
    f"{_SOURCE}: a quiet subscription's cursor does not grow old",
)
async def check_quiet(server: ServerUnderTest) -> str:
    reply = await server.require(poll_again)
    expect(isinstance(reply.result.get("cursor"), str), f"cursor is {reply.result.get('cursor', ABSENT)!r}")
    return "a cursor"


@CHAPTER.must(
    "cursor-resumes",
    "A cursor from before an event gives this event again, as often as it is polled",
    f"{_SOURCE}: a cursor is a position, and polling keeps no state",
)
async def check_resumes(server: ServerUnderTest) -> str:
    seen = await server.observe(polled_event)
    wanted = seen.occurrences[0].get("eventId")
    again = await poll(server, await server.require(pollable), seen.before)
    ids = [each.get("eventId") for each in occurrences_in(again)]
    expect(wanted in ids, f"{wanted} is not in {ids}")
    return f"{wanted} again"


@CHAPTER.must(
    "cursor-moves-past",
    "The cursor behind an event does not give this event again",
    f"{_SOURCE}: the returned cursor is behind the returned events",
)
async def check_moves_past(server: ServerUnderTest) -> str:
    seen = await server.require(polled_event)
    ids = {each.get("eventId") for each in seen.occurrences}
    reply = await poll(server, await server.require(pollable), seen.after)
    repeated = ids & {each.get("eventId") for each in occurrences_in(reply)}
    expect(not repeated, f"{repeated} came again")
    return "no event twice"


@CHAPTER.must(
    "max-age-ms-floor",
    "`maxAgeMs` is accepted, and one hour of it leaves out nothing that has just happened",
    f"{_SOURCE}: replay starts at the later of the cursor and now - maxAgeMs",
)
async def check_max_age(server: ServerUnderTest) -> str:
    seen = await server.require(polled_event)
    reply = await poll(server, await server.require(pollable), seen.before, maxAgeMs=HOUR_MILLISECONDS)
    expect(reply.has_result, reply.describe())
    ids = [each.get("eventId") for each in occurrences_in(reply)]
    expect(seen.occurrences[0].get("eventId") in ids, f"{seen.occurrences[0].get('eventId')} is not in {ids}")
    return f"{len(ids)} events of the last hour"


@CHAPTER.should(
    "max-age-ms-sets-truncated",
    "When `maxAgeMs` leaves events out, the response says `truncated: true`",
    f"{_SOURCE}: `truncated` announces that events were skipped",
)
async def check_max_age_truncates(server: ServerUnderTest) -> str:
    seen = await server.require(polled_event)
    await asyncio.sleep(AGE_SECONDS)
    reply = await poll(server, await server.require(pollable), seen.before, maxAgeMs=1)
    left_out = not occurrences_in(reply)
    expect(left_out, f"{len(occurrences_in(reply))} events that are older than 1 ms")
    expect(reply.result.get("truncated") is True, f"truncated is {reply.result.get('truncated', ABSENT)!r}")
    return "truncated: true"


@CHAPTER.must(
    "max-age-ms-ignored-when-cursor-null",
    "With a null cursor, `maxAgeMs` replays nothing and is no error",
    f"{_SOURCE}: `maxAgeMs` bounds a replay and asks for none",
)
async def check_max_age_of_null(server: ServerUnderTest) -> str:
    await _make_history(server)
    reply = await poll(server, await server.require(pollable), None, maxAgeMs=HOUR_MILLISECONDS)
    expect(reply.has_result and not occurrences_in(reply), reply.describe())
    return "a result without events"


@CHAPTER.must(
    "truncated-poll-never-an-error",
    "An unknown cursor is no error: the result says `truncated: true`",
    f"{_SOURCE}: an expired or unknown cursor is a gap, which the client can recover from",
)
async def check_unknown_cursor(server: ServerUnderTest) -> str:
    reply = await server.observe(poll_unknown_cursor)
    expect(reply.has_result, reply.describe())
    if not isinstance((await server.require(poll_from_now)).result.get("cursor"), str):
        raise Untestable("this event type gives no cursor")
    expect(reply.result.get("truncated") is True, f"truncated is {reply.result.get('truncated', ABSENT)!r}")
    return "truncated: true"


@CHAPTER.must(
    "truncated-returns-fresh-cursor",
    "With `truncated: true` comes a cursor that works",
    f"{_SOURCE}: after a gap the client goes on from the returned cursor",
)
async def check_fresh_cursor(server: ServerUnderTest) -> str:
    gap = await server.require(poll_unknown_cursor)
    if gap.result.get("truncated") is not True:
        raise Untestable("no response said truncated: true")
    cursor = gap.result.get("cursor")
    expect(isinstance(cursor, str), f"cursor is {cursor!r}")
    reply = await poll(server, await server.require(pollable), cursor)
    expect(reply.has_result and reply.result.get("truncated") is not True, reply.describe())
    return "the next poll goes on"


@CHAPTER.should(
    "truncated-false-when-no-replay",
    "A type without replay does not say `truncated: true`",
    f"{_SOURCE}: without replay there is nothing to be skipped",
)
async def check_no_replay(server: ServerUnderTest) -> str:
    reply = await server.require(poll_from_now)
    if isinstance(reply.result.get("cursor"), str):
        raise Untestable("this event type replays")
    expect(reply.result.get("truncated") is not True, "truncated: true")
    return "not truncated"


CHAPTER.needs_fixture(
    CheckLevel.SHOULD,
    "replay-ceiling-sets-truncated",
    "A server's own limit of replay is announced by `truncated: true`",
    f"{_SOURCE}: a ceiling is allowed, and must not be silent",
    missing="needs a cursor that is older than the server's retention",
)


async def _list_cursors(server: ServerUnderTest) -> list[Any]:
    replies: list[Reply] = [await server.require(poll_from_now)]
    with suppress(Untestable):
        replies += [await server.require(poll_again), *(await server.require(polled_event)).replies]
    return [reply.result.get("cursor") for reply in replies if reply.has_result]


async def _make_history(server: ServerUnderTest) -> None:
    """Let an event have happened, so that a replay would show, unless nothing makes one happen."""
    with suppress(Untestable):
        await server.require(polled_event)
