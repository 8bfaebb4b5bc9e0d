"""events/stream: its frames, its heartbeats and its ends."""

from typing import Final

from ringback.cli.check_report import CheckLevel
from ringback.cli.server_checks.cases import Chapter, Deviation, Untestable, expect
from ringback.cli.server_checks.message_stream import Json, StreamFrame
from ringback.cli.server_checks.polling import pollable, polled_event
from ringback.cli.server_checks.rules import INVALID_PARAMS, find_faults, require_error
from ringback.cli.server_checks.streaming import (
    ACTIVE,
    CONCURRENT_STREAMS,
    HEARTBEAT,
    NOTIFICATIONS,
    STREAM,
    TEXT_ID,
    await_active,
    await_refusal,
    build_params,
    concurrent_streams,
    get_subscription_id,
    opened_stream,
    refused_stream,
    resumed_stream,
    streamable,
    text_id_stream,
)
from ringback.cli.server_checks.subject import ABSENT, ServerUnderTest, list_catalog, list_modes

CHAPTER: Final = Chapter("stream")
_SOURCE: Final = "Events (SEP-3415), Push"


@CHAPTER.must(
    "stream-implemented",
    "`events/stream` opens a stream of server-sent events for one subscription",
    f"{_SOURCE}: a server whose types offer push implements events/stream",
)
async def check_implemented(server: ServerUnderTest) -> str:
    return f"{len((await server.observe(opened_stream)).frames)} frames"


@CHAPTER.must(
    "stream-active-confirmation",
    "The first frame is `notifications/events/active` with `cursor` and `truncated`",
    f"{_SOURCE}: it confirms the subscription before any event",
)
async def check_active(server: ServerUnderTest) -> str:
    stream = await server.require(opened_stream)
    first = next(frame for frame in stream.frames if frame.comment is None)
    expect(first.method == ACTIVE, f"the first frame is {first.method}")
    params = stream.active.params
    expect(isinstance(params.get("cursor"), str | None), f"cursor is {params.get('cursor')!r}")
    expect(isinstance(params.get("truncated"), bool), f"truncated is {params.get('truncated', ABSENT)!r}")
    return f"cursor: {params.get('cursor')!r}, truncated: {params['truncated']}"


@CHAPTER.must(
    "stream-subscription-id-meta",
    "Each notification has the request's id in `_meta`, with its JSON type",
    f"{_SOURCE}: `io.modelcontextprotocol/subscriptionId` is the id of the request",
)
async def check_subscription_id(server: ServerUnderTest) -> str:
    stream = await server.require(opened_stream)
    for frame in stream.frames:
        if (frame.method or "").startswith(NOTIFICATIONS):
            _expect_id(frame, stream.request_id)
    _expect_id(await server.observe(text_id_stream), TEXT_ID)
    return "for a number and for a string"


@CHAPTER.must(
    "stream-event-notification",
    "An event is `notifications/events/event` with a valid occurrence as params",
    f"{_SOURCE}: the params are the occurrence",
)
async def check_event(server: ServerUnderTest) -> str:
    frame = await _require_event(server)
    event = await server.require(streamable)
    faults = find_faults(frame.params, event.name, event.payload_schema)
    expect(not faults, "; ".join(faults))
    return f"eventId: {frame.params['eventId']}"


@CHAPTER.must(
    "stream-carries-only-event-notifications",
    "Only `notifications/events/…` come on the stream",
    f"{_SOURCE}: the stream carries this subscription's events and nothing else",
)
async def check_only_events(server: ServerUnderTest) -> str:
    frames = [frame for frame in (await server.require(opened_stream)).frames if frame.comment is None]
    others = {frame.method for frame in frames if not (frame.method or "").startswith(NOTIFICATIONS)}
    expect(not others, f"other messages: {others}")
    return f"{len(frames)} notifications"


@CHAPTER.must(
    "stream-heartbeat-required",
    "`notifications/events/heartbeat` comes on an idle stream",
    f"{_SOURCE}: a client takes silence of two heartbeats for a dead stream",
)
async def check_heartbeat(server: ServerUnderTest) -> str:
    stream = await server.require(opened_stream)
    if stream.heartbeat is None and stream.longest_silence < server.timeouts.silence_seconds:
        raise Untestable(
            "none, but the stream was never idle: choose an event type that happens less often, by --event"
        )
    expect(stream.heartbeat is not None, f"none within {server.timeouts.heartbeat_seconds:.0f} s")
    return "a heartbeat"


@CHAPTER.must(
    "stream-heartbeat-carries-cursor",
    "A heartbeat's `cursor` is a string or null",
    f"{_SOURCE}: a heartbeat carries the position of the stream",
)
async def check_heartbeat_cursor(server: ServerUnderTest) -> str:
    params = (await _require_heartbeat(server)).params
    expect("cursor" in params and isinstance(params["cursor"], str | None), f"params: {params}")
    return f"cursor: {params['cursor']!r}"


@CHAPTER.should(
    "stream-heartbeat-interval",
    "Heartbeats come at least every 30 s",
    f"{_SOURCE}: the interval should be at most 30 s",
)
async def check_heartbeat_interval(server: ServerUnderTest) -> str:
    stream = await server.require(opened_stream)
    heartbeat = await _require_heartbeat(server)
    before = max([stream.opened_at, *(frame.at for frame in stream.frames if frame.at < heartbeat.at)])
    expect(heartbeat.at - before <= server.timeouts.silence_seconds, f"{heartbeat.at - before:.0f} s of silence")
    return f"after {heartbeat.at - before:.0f} s of silence"


@CHAPTER.should(
    "stream-heartbeat-not-sse-comment",
    "No comment lines come on the stream",
    f"{_SOURCE}: a heartbeat is a frame with data, because clients do not see comments",
)
async def check_no_comments(server: ServerUnderTest) -> str:
    comments = [frame.comment for frame in (await server.require(opened_stream)).frames if frame.comment is not None]
    expect(not comments, f"{len(comments)} comments, such as {comments[:1]}")
    return "no comments"


@CHAPTER.must(
    "stream-error-before-open",
    "A stream of an unknown name is refused with NotFound, and does not open",
    f"{_SOURCE}: an invalid subscription is a plain JSON-RPC error",
)
async def check_refusal(server: ServerUnderTest) -> str:
    return require_error(await server.observe(refused_stream), "NotFound")


@CHAPTER.must(
    "stream-mode-unsupported",
    "A stream of a type that does not offer push is refused with Unsupported",
    "Events (SEP-3415), Errors: Unsupported for a delivery mode that the type does not offer",
)
async def check_mode(server: ServerUnderTest) -> str:
    await server.require(streamable)
    others = [each for each in (await server.require(list_catalog)).descriptors if "push" not in list_modes(each)]
    if not others:
        raise Untestable("every event type offers push")
    params: Json = {"name": others[0].get("name"), "arguments": {}, "cursor": None}
    async with server.connection.open_stream(STREAM, params) as stream:
        reply = await await_refusal(server, stream)
    if reply.code == INVALID_PARAMS:
        raise Untestable(f"the arguments of {others[0].get('name')} are checked first: {reply.describe()}")
    return require_error(reply, "Unsupported")


@CHAPTER.must(
    "stream-exempt-from-concurrency-cap",
    f"{CONCURRENT_STREAMS} streams at once are all confirmed",
    f"{_SOURCE}: streams are exempt from limits of concurrent requests",
)
async def check_concurrency(server: ServerUnderTest) -> str:
    confirmed = await server.observe(concurrent_streams)
    expect(confirmed == CONCURRENT_STREAMS, f"{confirmed} of {CONCURRENT_STREAMS} were confirmed")
    return f"{confirmed} streams"


@CHAPTER.must(
    "stream-cancel-stops-delivery",
    "After the connection is closed, a new stream has only frames of its own",
    f"{_SOURCE}: aborting the request ends the subscription",
)
async def check_cancel(server: ServerUnderTest) -> str:
    closed = (await server.require(opened_stream)).request_id
    event = await server.require(streamable)
    async with server.connection.open_stream(STREAM, build_params(event)) as stream:
        await await_active(server, stream)
        await stream.wait_for(
            lambda frame: get_subscription_id(frame) == closed, min(server.timeouts.quiet_seconds, 1.0)
        )
        foreign = [frame.method for frame in stream.frames if get_subscription_id(frame) == closed]
    expect(not foreign, f"frames of the closed stream: {foreign}")
    return "no frame of the closed stream"


@CHAPTER.must(
    "stream-resumes",
    "A stream from a cursor replays the events behind it",
    "Events (SEP-3415), Cursors: one cursor is a position in all modes",
)
async def check_resumes(server: ServerUnderTest) -> str:
    wanted, ids = await server.observe(resumed_stream)
    expect(wanted in ids, f"{wanted} is not in {ids}")
    return f"{wanted} again"


@CHAPTER.must(
    "stream-same-id-as-poll",
    "Poll and push give the same event the same `eventId`",
    "Events (SEP-3415), Occurrences: `eventId` identifies the event, not its delivery",
)
async def check_same_id(server: ServerUnderTest) -> str:
    frame = await _require_event(server)
    if (await server.require(pollable)).name != frame.params.get("name"):
        raise Untestable("no event type offers both poll and push")
    wanted, ids = await server.require(resumed_stream)
    polled = [each.get("eventId") for each in (await server.require(polled_event)).occurrences]
    expect(polled[0] in ids, f"polled {polled}, streamed {ids}")
    return f"{wanted} in both"


CHAPTER.needs_fixture(
    CheckLevel.MUST,
    "stream-error-is-recoverable",
    "`notifications/events/error` leaves the stream open",
    f"{_SOURCE}: an error of one check does not end the subscription",
    missing="needs an upstream that fails once while a stream is open",
)
CHAPTER.needs_fixture(
    CheckLevel.MUST,
    "stream-terminated-ends-subscription",
    "`notifications/events/terminated`, and nothing else, ends a subscription",
    f"{_SOURCE}: the client need not come back then",
    missing="needs an event type that is removed while a stream is open",
)
CHAPTER.needs_fixture(
    CheckLevel.SHOULD,
    "stream-gap-resends-active",
    "A gap is a second `active` with `truncated: true`",
    f"{_SOURCE}: events were skipped, and the stream goes on",
    missing="needs a gap while a stream is open",
)
CHAPTER.needs_fixture(
    CheckLevel.SHOULD,
    "stream-final-result-shape",
    "A stream that the server closes ends with an empty result (`_meta`, `resultType` apart)",
    f"{_SOURCE}: the response to the request is its last frame",
    missing="needs a server that ends while a stream is open",
)


@CHAPTER.should(
    "stream-final-result-timing",
    "The final result comes only when the server closes the stream",
    f"{_SOURCE}: an open stream has no response yet",
)
async def check_final_result_timing(server: ServerUnderTest) -> str:
    frames = (await server.require(opened_stream)).frames
    early = [frame for frame in frames if frame.message is not None and "method" not in frame.message]
    if early:
        raise Deviation(f"a response on an open stream: {early[0].message}")
    return "no response while the stream was open"


async def _require_event(server: ServerUnderTest) -> StreamFrame:
    stream = await server.require(opened_stream)
    if stream.event is None:
        raise stream.no_event
    return stream.event


async def _require_heartbeat(server: ServerUnderTest) -> StreamFrame:
    heartbeat = (await server.require(opened_stream)).heartbeat
    if heartbeat is None:
        raise Untestable(f"no {HEARTBEAT} came")
    return heartbeat


def _expect_id(frame: StreamFrame, request_id: int | str) -> None:
    found = get_subscription_id(frame)
    same = found == request_id and type(found) is type(request_id)
    expect(same, f"{frame.method} has the id {found!r} instead of {request_id!r}")
