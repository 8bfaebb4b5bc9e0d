"""The members of an event occurrence, as events/poll returns it."""

from typing import Any, Final

from ringback.cli.server_checks.cases import Chapter, expect
from ringback.cli.server_checks.polling import pollable, polled_backlog, polled_event
from ringback.cli.server_checks.rules import list_missing_members, parse_time
from ringback.cli.server_checks.subject import ABSENT, ServerUnderTest

CHAPTER: Final = Chapter("occurrences")
_SOURCE: Final = "Events (SEP-3415), Occurrences"


async def _member(server: ServerUnderTest, name: str) -> list[Any]:
    return [each.get(name, ABSENT) for each in (await server.require(polled_event)).occurrences]


@CHAPTER.must("occurrence-event-id", "`eventId` is a non-empty string", f"{_SOURCE}: each occurrence has an id")
async def check_event_id(server: ServerUnderTest) -> str:
    ids = await _member(server, "eventId")
    expect(all(isinstance(each, str) and each for each in ids), f"eventId is {ids}")
    return f"eventId: {ids[0]}"


@CHAPTER.must("occurrence-name", "`name` is the polled event type", f"{_SOURCE}: `name` names the event type")
async def check_name(server: ServerUnderTest) -> str:
    polled, names = (await server.require(pollable)).name, await _member(server, "name")
    expect(set(names) == {polled}, f"name is {names} in a poll of {polled}")
    return f"name: {polled}"


@CHAPTER.must(
    "occurrence-timestamp", "`timestamp` is ISO 8601 with date, T and time", f"{_SOURCE}: when the event happened"
)
async def check_timestamp(server: ServerUnderTest) -> str:
    times = await _member(server, "timestamp")
    expect(all(parse_time(each) for each in times), f"timestamp is {times}")
    return f"timestamp: {times[0]}"


@CHAPTER.should(
    "occurrence-timestamp-offset",
    "`timestamp` has an offset, such as Z",
    f"{_SOURCE}: an instant, not a local time; AI SDK refuses a time without an offset",
)
async def check_offset(server: ServerUnderTest) -> str:
    times = [(text, parse_time(text)) for text in await _member(server, "timestamp")]
    expect(all(time is None or time.tzinfo for _, time in times), f"timestamp is {[text for text, _ in times]}")
    return f"timestamp: {times[0][0]}"


@CHAPTER.must("occurrence-data", "`data` is an object", f"{_SOURCE}: the payload, which `payloadSchema` describes")
async def check_data(server: ServerUnderTest) -> str:
    values = await _member(server, "data")
    expect(all(isinstance(each, dict) for each in values), f"data is {values!r}"[:200])
    return f"members: {', '.join(values[0])}"


@CHAPTER.must(
    "occurrence-data-required",
    "`data` has the members that `payloadSchema` requires",
    f"{_SOURCE}: `data` is valid against `payloadSchema`",
)
async def check_required_members(server: ServerUnderTest) -> str:
    schema = (await server.require(pollable)).payload_schema
    for data in await _member(server, "data"):
        missing = list_missing_members(data, schema)
        expect(not missing, f"data lacks {', '.join(missing)}")
    return f"required: {schema.get('required', [])}"


@CHAPTER.must(
    "occurrence-no-type",
    "An occurrence has no top-level `type`",
    "Events (SEP-3415), Control envelopes: `type` marks a control envelope",
)
async def check_no_type(server: ServerUnderTest) -> str:
    types = await _member(server, "type")
    expect(all(each is ABSENT for each in types), f"type is {types}")
    return "no type"


@CHAPTER.must(
    "occurrence-cursor-optional",
    "`cursor`, when there, is a string or null",
    f"{_SOURCE}: absent means the same as null",
)
async def check_cursor(server: ServerUnderTest) -> str:
    cursors = await _member(server, "cursor")
    expect(all(each is ABSENT or isinstance(each, str | None) for each in cursors), f"cursor is {cursors}")
    return f"cursor: {cursors[0]!r}"


@CHAPTER.should(
    "occurrence-meta-ungoverned", "`_meta`, when there, is an object", "MCP, General fields: `_meta` is an object"
)
async def check_meta(server: ServerUnderTest) -> str:
    values = await _member(server, "_meta")
    expect(all(each is ABSENT or isinstance(each, dict) for each in values), f"_meta is {values!r}")
    return f"_meta: {values[0]!r}"[:100]


@CHAPTER.should(
    "occurrence-event-id-from-upstream",
    "No id comes twice in one reading of the log",
    f"{_SOURCE}: ids are the source's own, stable ids",
)
async def check_unique_ids(server: ServerUnderTest) -> str:
    ids = [str(each.get("eventId")) for each in (await server.require(polled_backlog)).occurrences]
    expect(len(set(ids)) == len(ids), f"ids: {ids}")
    return f"{len(ids)} ids"
