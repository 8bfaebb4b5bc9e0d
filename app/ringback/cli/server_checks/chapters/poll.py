"""events/poll: its result, its batches and its refusals."""

import math
from typing import Any, Final

from ringback.cli.server_checks.arguments import make_mistyped_arguments
from ringback.cli.server_checks.cases import Chapter, Deviation, Untestable, expect
from ringback.cli.server_checks.polling import (
    POLL,
    backlog_pages,
    occurrences_in,
    poll,
    poll_again,
    poll_from_now,
    pollable,
    polled_backlog,
)
from ringback.cli.server_checks.rules import INVALID_PARAMS, require_error
from ringback.cli.server_checks.subject import ABSENT, ServerUnderTest, list_catalog, list_modes

CHAPTER: Final = Chapter("poll")
_SOURCE: Final = "Events (SEP-3415), Poll"
UNKNOWN_NAME: Final = "ringback.check.no_such_event"


@CHAPTER.must(
    "poll-implemented",
    "`events/poll` answers `{events, cursor, nextPollMs}`",
    f"{_SOURCE}: a server whose types offer poll implements events/poll",
)
async def check_implemented(server: ServerUnderTest) -> str:
    return (await server.observe(poll_from_now)).describe()


@CHAPTER.must(
    "poll-bootstraps-subscription",
    "The first poll, with a null cursor, needs no subscription before it",
    f"{_SOURCE}: the server keeps no required state for a poll",
)
async def check_bootstrap(server: ServerUnderTest) -> str:
    reply = await server.observe(poll_from_now)
    return f"HTTP {reply.status} with a result"


@CHAPTER.must(
    "poll-events-array",
    "`events` is an array, empty when nothing happened",
    f"{_SOURCE}: the result always has `events`",
)
async def check_events_array(server: ServerUnderTest) -> str:
    events = (await server.require(poll_from_now)).result.get("events", ABSENT)
    expect(isinstance(events, list), f"events is {events!r}")
    return f"{len(events)} events"


@CHAPTER.must(
    "poll-response-cursor",
    "`cursor` is a string, null or absent",
    f"{_SOURCE}: the cursor of the next poll; null for a type without replay",
)
async def check_cursor(server: ServerUnderTest) -> str:
    cursor = (await server.require(poll_from_now)).result.get("cursor")
    expect(cursor is None or isinstance(cursor, str), f"cursor is {cursor!r}")
    return f"cursor: {cursor!r}"


@CHAPTER.should(
    "poll-next-poll-ms",
    "`nextPollMs` is a finite number of at least 0",
    f"{_SOURCE}: the server says when the next poll is worth while",
)
async def check_next_poll(server: ServerUnderTest) -> str:
    value = (await server.require(poll_from_now)).result.get("nextPollMs", ABSENT)
    expect(_is_number(value) and math.isfinite(value) and value >= 0, f"nextPollMs is {value!r}")
    return f"nextPollMs: {value}"


@CHAPTER.must("poll-has-more", "`hasMore`, when there, is a boolean", f"{_SOURCE}: more events are ready at once")
async def check_has_more(server: ServerUnderTest) -> str:
    value = (await server.require(poll_from_now)).result.get("hasMore", ABSENT)
    expect(value is ABSENT or isinstance(value, bool), f"hasMore is {value!r}")
    return f"hasMore: {value!r}"


@CHAPTER.must(
    "poll-one-subscription-per-request",
    "A poll without `name` is refused with -32602",
    f"{_SOURCE}: one request polls one subscription, which its name and arguments identify",
)
async def check_one_subscription(server: ServerUnderTest) -> str:
    await server.require(pollable)
    return require_error(await server.request(POLL, {"arguments": {}, "cursor": None}), "InvalidParams")


@CHAPTER.must(
    "poll-errors-are-jsonrpc",
    "A refused poll is a JSON-RPC error, not a result with an error in it",
    f"{_SOURCE}: errors are errors of the request, never partial results",
)
async def check_errors(server: ServerUnderTest) -> str:
    await server.require(pollable)
    reply = await server.request(POLL, {"name": UNKNOWN_NAME, "arguments": {}, "cursor": None})
    expect(isinstance(reply.code, int) and isinstance(reply.error.get("message"), str), reply.describe())
    return reply.describe()


@CHAPTER.must(
    "removal-poll-not-found",
    "A poll of a name that is not served is refused with NotFound, `data.kind` is `event`",
    "Events (SEP-3415), Errors: NotFound for an unknown event; its data names the kind",
)
async def check_not_served(server: ServerUnderTest) -> str:
    await server.require(pollable)
    reply = await server.request(POLL, {"name": UNKNOWN_NAME, "arguments": {}, "cursor": None})
    observed = require_error(reply, "NotFound")
    if reply.data.get("kind") != "event":
        raise Deviation(f"data is {reply.error.get('data')!r}")
    return observed


@CHAPTER.must(
    "poll-invalid-arguments",
    "Arguments of a wrong type are refused with -32602",
    f"{_SOURCE}: arguments are checked against `inputSchema`",
)
async def check_invalid_arguments(server: ServerUnderTest) -> str:
    event = await server.require(pollable)
    wrong = make_mistyped_arguments(event.input_schema, event.arguments)
    if wrong is None:
        raise Untestable("the inputSchema of this event type forbids nothing")
    return require_error(
        await server.request(POLL, {"name": event.name, "arguments": wrong, "cursor": None}), "InvalidParams"
    )


@CHAPTER.must(
    "poll-mode-unsupported",
    "A poll of a type that does not offer poll is refused with Unsupported",
    "Events (SEP-3415), Errors: Unsupported for a delivery mode that the type does not offer",
)
async def check_mode(server: ServerUnderTest) -> str:
    await server.require(pollable)
    others = [each for each in (await server.require(list_catalog)).descriptors if "poll" not in list_modes(each)]
    if not others:
        raise Untestable("every event type offers poll")
    reply = await server.request(POLL, {"name": others[0].get("name"), "arguments": {}, "cursor": None})
    if reply.code == INVALID_PARAMS:
        raise Untestable(f"the arguments of {others[0].get('name')} are checked first: {reply.describe()}")
    return require_error(reply, "Unsupported")


@CHAPTER.must(
    "poll-stateless-request",
    "A poll with a returned cursor works by itself",
    f"{_SOURCE}: each request has all that it needs",
)
async def check_stateless(server: ServerUnderTest) -> str:
    reply = await server.observe(poll_again)
    expect(reply.has_result, reply.describe())
    return f"{len(occurrences_in(reply))} events"


@CHAPTER.must(
    "poll-max-events-cap",
    "`maxEvents: 1` is accepted, and caps the batch",
    f"{_SOURCE}: a response has at most `maxEvents` events",
)
async def check_max_events(server: ServerUnderTest) -> str:
    event = await server.require(pollable)
    reply = await poll(server, event, None, maxEvents=1)
    expect(reply.has_result, reply.describe())
    sizes = [len(occurrences_in(page)) for page in await _optional_pages(server)]
    expect(max(sizes, default=0) <= 1, f"batches of {sizes} events for maxEvents: 1")
    if not sizes:
        raise Untestable("maxEvents: 1 is accepted; there is no backlog to cap")
    return f"batches of {sizes}"


@CHAPTER.must(
    "poll-has-more-completes",
    "A backlog read page by page has the same events in the same order as in one batch",
    f"{_SOURCE}: after `maxEvents`, an intermediate cursor and `hasMore: true`; order is kept in poll mode",
)
async def check_pages(server: ServerUnderTest) -> str:
    whole = [each.get("eventId") for each in (await server.observe(polled_backlog)).occurrences]
    paged = [each.get("eventId") for page in await server.observe(backlog_pages) for each in occurrences_in(page)]
    expect(paged[: len(whole)] == whole, f"{paged} page by page, {whole} in one batch")
    return f"{len(paged)} events in both"


@CHAPTER.should(
    "poll-next-poll-ms-ignored-when-has-more",
    "With `hasMore: true`, the next page is served at once",
    f"{_SOURCE}: a client polls again at once then, whatever `nextPollMs` says",
)
async def check_at_once(server: ServerUnderTest) -> str:
    pages = await server.require(backlog_pages)
    if len(pages) < 2:  # noqa: PLR2004 - a next page is the second
        raise Untestable("no page had hasMore: true")
    expect(bool(occurrences_in(pages[1])), "the next page was empty")
    return f"{len(pages)} pages without a pause"


async def _optional_pages(server: ServerUnderTest) -> list[Any]:
    try:
        return list(await server.require(backlog_pages))
    except Untestable:
        return []


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
