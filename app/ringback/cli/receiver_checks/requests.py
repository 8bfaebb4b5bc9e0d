"""Checks of requests: methods, content types, slow bodies, copies, several subscriptions, and what answers give away."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Final

from ringback.cli.receiver_checks.checks import (
    MUST,
    OTHER_SECRET,
    SHOULD,
    CheckGroup,
    Observation,
    accepted,
    all_accepted,
    refused,
    survived,
)
from ringback.cli.receiver_checks.probe import ANSWER_BYTES_MAX, ReceiverProbe, encode

COPIES: Final = 5
SLOW_PIECES: Final = 4
SLOW_SECONDS: Final = 0.25
"""Between two pieces of a slow body: a second in all, as over a bad network."""
_AT_LEAST_ONCE: Final = (
    "MCP Events, delivery: events come at least once. A copy has the same subscription and webhook-id, and gets 2xx."
)
_POST: Final = "MCP Events, delivery: POST with JSON only; RFC 9110 §15.5.6: another method gets 405."

BUSY: Final = 503
"""MCP Events, delivery: a sender retries it."""
check: Final = CheckGroup()


@check("repeated-message", MUST, "The same message twice, byte by byte, gets 2xx both times", source=_AT_LEAST_ONCE)
async def repeated_message(probe: ReceiverProbe) -> Observation:
    event = probe.make_event()
    return all_accepted(await probe.post_event(event), await probe.post_event(event))


@check(
    "retried-message",
    MUST,
    "A retry, with the same webhook-id and body and a fresh signature, gets 2xx",
    source="MCP Events, delivery: a retry has the same body and webhook-id, and a fresh timestamp and signature.",
)
async def retried_message(probe: ReceiverProbe) -> Observation:
    event = probe.make_event()
    first = await probe.post_event(event, age_seconds=30)
    return all_accepted(first, await probe.post_event(event))


@check(
    "concurrent-copies",
    MUST,
    "Five copies at the same time get 2xx, or 503 until the first is handled",
    source=_AT_LEAST_ONCE,
)
async def concurrent_copies(probe: ReceiverProbe) -> Observation:
    event = probe.make_event()
    answers = await asyncio.gather(*(probe.post_event(event) for _ in range(COPIES)))
    ok = any(each.is_accepted for each in answers) and all(each.is_accepted or each.status == BUSY for each in answers)
    return ok, ", ".join(map(str, answers))


@check(
    "two-subscriptions",
    SHOULD,
    "One event for two subscriptions with one secret gets 2xx twice",
    source="MCP Events, delivery: an eventId is no subscription; that stands in the header.",
)
async def two_subscriptions(probe: ReceiverProbe) -> Observation:
    event = probe.make_event()
    first = await probe.post_event(event)
    return all_accepted(first, await probe.post_event(event, subscription_id=f"sub_{probe.new_id()}"))


@check(
    "header-case",
    MUST,
    "Header names in other cases get 2xx",
    source="RFC 9110 §5.1: names of fields are case-insensitive.",
)
async def header_case(probe: ReceiverProbe) -> Observation:
    event = probe.make_event()
    message_id, timestamp = str(event["eventId"]), int(probe.now().timestamp())
    headers = {
        "CONTENT-TYPE": "application/json",
        "x-mcp-SUBSCRIPTION-id": probe.subscription_id,
        "Webhook-Id": message_id,
        "WEBHOOK-TIMESTAMP": str(timestamp),
        "wEbHoOk-SiGnAtUrE": probe.sign(message_id, encode(event), timestamp=timestamp),
    }
    return accepted(await probe.send("POST", encode(event), headers))


@check(
    "content-type-charset",
    MUST,
    "application/json with a charset gets 2xx",
    source="RFC 9110 §8.3: a media type may have parameters; mcp-events §8: Content-Type is application/json.",
)
async def content_type_charset(probe: ReceiverProbe) -> Observation:
    return accepted(await probe.post_event(changed={"content-type": "application/json; charset=utf-8"}))


@check(
    "wrong-content-type",
    MUST,
    "A body that claims to be a form does not make the receiver fail",
    source="MCP Events, delivery: Content-Type is application/json; another one is refused, or not looked at.",
)
async def wrong_content_type(probe: ReceiverProbe) -> Observation:
    return survived(await probe.post_event(changed={"content-type": "multipart/form-data; boundary=x"}))


@check("get", SHOULD, "GET gets 4xx", source=_POST)
async def get(probe: ReceiverProbe) -> Observation:
    return refused(await probe.send("GET", None, {}))


@check("head", SHOULD, "HEAD gets 4xx", source=_POST)
async def head(probe: ReceiverProbe) -> Observation:
    return refused(await probe.send("HEAD", None, {}))


@check(
    "no-redirect",
    MUST,
    "A delivery is not redirected",
    source="MCP Events, delivery: 3xx is a failure and is never followed.",
)
async def no_redirect(probe: ReceiverProbe) -> Observation:
    answer = await probe.post_event()
    return answer.status is not None and not 300 <= answer.status < 400, str(answer)  # noqa: PLR2004 - the class


@check(
    "slow-body",
    MUST,
    "A body that arrives in pieces within a second gets 2xx",
    source="RFC 9112 §7.1: a body may come in chunks; a slow network is no reason to lose an event.",
)
async def slow_body(probe: ReceiverProbe) -> Observation:
    event = probe.make_event()
    return accepted(await probe.post_event(event, sent_body=_in_pieces(encode(event))))


@check(
    "short-answers",
    SHOULD,
    "The answer has at most 64 KiB",
    source="MCP Events, addresses: a sender caps the bytes of an answer.",
)
async def short_answers(probe: ReceiverProbe) -> Observation:
    answer = await probe.post_event()
    size = f"{len(answer.body)} bytes" if len(answer.body) < ANSWER_BYTES_MAX else f"{ANSWER_BYTES_MAX} bytes or more"
    return answer.is_accepted and len(answer.body) < ANSWER_BYTES_MAX, f"{answer}, {size}"


@check(
    "no-secret-in-answers",
    MUST,
    "Neither the secret nor the expected signature stands in a refusal",
    source="Standard Webhooks: a signature is compared in constant time, and never shown.",
)
async def no_secret_in_answers(probe: ReceiverProbe) -> Observation:
    event = probe.make_event()
    message_id = str(event["eventId"])
    timestamp = int(probe.now().timestamp())
    answer = await probe.post_event(event, secrets=[OTHER_SECRET])
    shown = answer.body.decode("utf-8", errors="replace").replace("\\/", "/") + str(dict(answer.headers))
    expected = [probe.sign(message_id, encode(event), timestamp=timestamp + late) for late in range(-1, 3)]
    secrets = [probe.secret.removeprefix("whsec_"), *(signature.removeprefix("v1,") for signature in expected)]
    leaks = any(secret in shown for secret in secrets)
    ok = answer.status is not None and not leaks
    return ok, f"{answer}, {'with' if leaks else 'without'} a secret or a signature"


async def _in_pieces(body: bytes) -> AsyncGenerator[bytes]:
    size = max(1, len(body) // SLOW_PIECES)
    for start in range(0, len(body), size):
        await asyncio.sleep(SLOW_SECONDS if start else 0)
        yield body[start : start + size]
