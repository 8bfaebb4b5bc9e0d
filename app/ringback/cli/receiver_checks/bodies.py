"""Checks of bodies: the largest one, all of Unicode, and JSON that is unusual or broken."""

from datetime import timedelta, timezone
from typing import Final

from ringback.cli.receiver_checks.checks import (
    MUST,
    SHOULD,
    CheckGroup,
    Observation,
    accepted,
    all_accepted,
    refused,
    survived,
)
from ringback.cli.receiver_checks.probe import ReceiverProbe, encode

BODY_BYTES_MAX: Final = 262_144
"""The largest body (mcp-events §8)."""
OVERSIZED_BYTES: Final = 4 * BODY_BYTES_MAX
"""Far beyond the limit: a receiver may allow some more than the specification."""
NESTING: Final = 10_000
"""Deeper than Python's and many other parsers follow."""
_SIZE: Final = "MCP Events, delivery: one event per POST, and the whole body has at most 262,144 bytes."
_ADDITIVE: Final = (
    "MCP Events, events/list: schemas evolve additively, so a receiver ignores members that it does not know."
)
_RAW: Final = (
    "MCP Events, delivery: the signature covers the raw body, so a receiver verifies the bytes and not what it parsed."
)
_ROBUST: Final = (
    "RFC 9110 §15.6: a 5xx says that the server failed; a sender repeats it, and the same body fails again."
)
_NO_EVENT: Final = (
    "MCP Events, delivery: 2xx acknowledges the delivery, and a body that is no JSON object delivers no event. "
    "RFC 9110 §15.5: a 4xx says that the request is wrong; after a 5xx a sender repeats it, and it fails again."
)

check: Final = CheckGroup()


@check("largest-body", MUST, "A signed event of exactly 262,144 bytes gets 2xx", source=_SIZE)
async def largest_body(probe: ReceiverProbe) -> Observation:
    event = probe.make_event()
    event["data"]["filler"] = ""
    event["data"]["filler"] = "x" * (BODY_BYTES_MAX - len(encode(event)))
    return accepted(await probe.post_event(event))


@check("oversized-body", SHOULD, "A body of 1 MiB gets 4xx", source=_SIZE)
async def oversized_body(probe: ReceiverProbe) -> Observation:
    event = probe.make_event()
    event["data"]["filler"] = "x" * OVERSIZED_BYTES
    answer = await probe.post_event(event)
    is_closed = answer.status is None and answer.failure in {"WriteError", "RemoteProtocolError", "ReadError"}
    return answer.is_refused or is_closed, str(answer)


@check("unicode", MUST, "Text of every kind gets 2xx: signatures cover bytes", source=_RAW)
async def unicode_text(probe: ReceiverProbe) -> Observation:
    event = probe.make_event()
    event["data"]["note"] = "déjà vu \N{SNOWMAN} \N{MUSICAL SYMBOL G CLEF} \N{HEBREW LETTER ALEF}\u2028\u00a0end"
    return accepted(await probe.post_event(event))


@check("spaces-in-json", MUST, "JSON with unusual spaces and escapes gets 2xx", source=_RAW)
async def spaces_in_json(probe: ReceiverProbe) -> Observation:
    event = probe.make_event()
    body = b" \n" + encode(event).replace(b'"data":', b'\t"d\\u0061ta" :\r\n').replace(b", ", b" ,\t") + b"\n"
    return accepted(await probe.post_signed(body, message_id=str(event["eventId"])))


@check("unknown-members", MUST, "Members that the receiver does not know do not matter: 2xx", source=_ADDITIVE)
async def unknown_members(probe: ReceiverProbe) -> Observation:
    event = probe.make_event(x_later={"version": 2}, _meta={"traceparent": "00-0-0-00"})
    event["data"]["later"] = [1, None, {"a": True}]
    return accepted(await probe.post_event(event))


@check(
    "null-and-absent-cursor",
    MUST,
    "An event without a cursor, and one whose cursor is null, get 2xx",
    source="MCP Events, occurrences: cursor is a string or null; absent equals null.",
)
async def cursors(probe: ReceiverProbe) -> Observation:
    absent = probe.make_event(cursor=None)
    null = {**probe.make_event(), "cursor": None}
    return all_accepted(await probe.post_event(absent), await probe.post_event(null))


@check(
    "timestamp-offset",
    MUST,
    "An event whose timestamp has an offset other than Z gets 2xx",
    source="MCP Events, occurrences: timestamp is ISO 8601 with an offset.",
)
async def timestamp_offset(probe: ReceiverProbe) -> Observation:
    local = probe.now().astimezone(timezone(timedelta(hours=5, minutes=45))).isoformat(timespec="seconds")
    return accepted(await probe.post_event(probe.make_event(timestamp=local)))


@check("no-json", SHOULD, "A signed body that is no JSON gets 4xx", source=_NO_EVENT)
async def no_json(probe: ReceiverProbe) -> Observation:
    return refused(await probe.post_signed(b"callback=done"))


@check("no-object", SHOULD, "A signed body that is a JSON list gets 4xx", source=_NO_EVENT)
async def no_object(probe: ReceiverProbe) -> Observation:
    return refused(await probe.post_signed(b"[1, 2, 3]"))


@check("empty-body", SHOULD, "A signed empty body gets 4xx", source=_NO_EVENT)
async def empty_body(probe: ReceiverProbe) -> Observation:
    return refused(await probe.post_signed(b""))


@check("invalid-utf-8", MUST, "A signed body that is no UTF-8 does not make the receiver fail", source=_ROBUST)
async def invalid_utf8(probe: ReceiverProbe) -> Observation:
    return survived(await probe.post_signed(b'{"eventId": "\xff\xfe"}'))


@check("duplicate-keys", MUST, "A signed body with repeated members does not make the receiver fail", source=_ROBUST)
async def duplicate_keys(probe: ReceiverProbe) -> Observation:
    event = probe.make_event()
    body = b'{"eventId": "evt_first", ' + encode(event)[1:]
    return survived(await probe.post_signed(body, message_id=str(event["eventId"])))


@check("deep-nesting", MUST, "A signed body of 10,000 nested lists does not make the receiver fail", source=_ROBUST)
async def deep_nesting(probe: ReceiverProbe) -> Observation:
    event = probe.make_event()
    body = encode(event)[:-1] + b', "deep": ' + b"[" * NESTING + b"]" * NESTING + b"}"
    return survived(await probe.post_signed(body, message_id=str(event["eventId"])))


@check(
    "unexpected-types",
    MUST,
    "A signed event whose members have other types does not make the receiver fail",
    source=_ROBUST,
)
async def unexpected_types(probe: ReceiverProbe) -> Observation:
    answer = await probe.post_event({"eventId": 7, "name": [], "timestamp": {}, "data": "text", "cursor": 1.5})
    return survived(answer)
