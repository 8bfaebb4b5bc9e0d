"""Checks of signatures: valid, forged, incomplete, too old, and during a rotation."""

from typing import Final

from ringback.cli.receiver_checks.checks import MUST, OTHER_SECRET, CheckGroup, Observation, accepted, refused
from ringback.cli.receiver_checks.probe import ReceiverProbe, encode
from ringback.signing.standard_webhooks import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER

OUTSIDE_WINDOW_SECONDS: Final = 600.0
"""Twice the tolerance of the Standard Webhooks libraries, so that clocks that differ by some minutes decide nothing."""
INSIDE_WINDOW_SECONDS: Final = 60.0
SIGNED_ID: Final = "evt_signed"
_SIGNED: Final = "MCP Events, delivery: v1 is the HMAC-SHA256 of id, timestamp and raw body, and is verified first."
_WINDOW: Final = (
    "Standard Webhooks: a receiver rejects a timestamp outside its tolerance, five minutes, in both directions."
)
_ROTATION: Final = (
    "MCP Events, delivery: several signatures may stand in the header, one for each secret; one match is enough."
)

ATTEMPT_SECONDS: Final = 5.0
"""The timeout of an attempt (mcp-events §8)."""
check: Final = CheckGroup()


@check("valid-event", MUST, "A signed event gets 2xx", source="MCP Events, delivery: 2xx acknowledges the delivery.")
async def valid_event(probe: ReceiverProbe) -> Observation:
    return accepted(await probe.post_event())


@check(
    "answers-in-time",
    MUST,
    "A signed event gets its answer within 5 seconds",
    source="MCP Events, delivery: an attempt ends after 5 s, and is repeated.",
)
async def answers_in_time(probe: ReceiverProbe) -> Observation:
    answer = await probe.post_event()
    return answer.is_accepted and answer.seconds <= ATTEMPT_SECONDS, f"{answer} after {answer.seconds:.1f} s"


@check("wrong-secret", MUST, "An event that another secret signed gets 4xx", source=_SIGNED)
async def wrong_secret(probe: ReceiverProbe) -> Observation:
    return refused(await probe.post_event(secrets=[OTHER_SECRET]))


@check("unsigned", MUST, "An event without any signature header gets 4xx", source=_SIGNED)
async def unsigned(probe: ReceiverProbe) -> Observation:
    headers = dict.fromkeys((ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER))
    return refused(await probe.post_event(changed=headers))


@check("missing-webhook-id", MUST, "A message without webhook-id gets 4xx", source=_SIGNED)
async def missing_id(probe: ReceiverProbe) -> Observation:
    return refused(await probe.post_event(changed={ID_HEADER: None}))


@check("missing-webhook-timestamp", MUST, "A message without webhook-timestamp gets 4xx", source=_SIGNED)
async def missing_timestamp(probe: ReceiverProbe) -> Observation:
    return refused(await probe.post_event(changed={TIMESTAMP_HEADER: None}))


@check("missing-webhook-signature", MUST, "A message without webhook-signature gets 4xx", source=_SIGNED)
async def missing_signature(probe: ReceiverProbe) -> Observation:
    return refused(await probe.post_event(changed={SIGNATURE_HEADER: None}))


@check("malformed-timestamp", MUST, "A timestamp that is no number gets 4xx", source=_WINDOW)
async def malformed_timestamp(probe: ReceiverProbe) -> Observation:
    return refused(await probe.post_event(changed={TIMESTAMP_HEADER: "yesterday"}))


@check("timestamp-too-old", MUST, "A signed message that is ten minutes old gets 4xx", source=_WINDOW)
async def timestamp_too_old(probe: ReceiverProbe) -> Observation:
    return refused(await probe.post_event(age_seconds=OUTSIDE_WINDOW_SECONDS))


@check("timestamp-too-new", MUST, "A signed message from ten minutes ahead gets 4xx", source=_WINDOW)
async def timestamp_too_new(probe: ReceiverProbe) -> Observation:
    return refused(await probe.post_event(age_seconds=-OUTSIDE_WINDOW_SECONDS))


@check("timestamp-within-window", MUST, "A signed message that is one minute old gets 2xx", source=_WINDOW)
async def timestamp_within_window(probe: ReceiverProbe) -> Observation:
    return accepted(await probe.post_event(age_seconds=INSIDE_WINDOW_SECONDS))


@check("changed-timestamp", MUST, "A message whose timestamp was changed after signing gets 4xx", source=_SIGNED)
async def changed_timestamp(probe: ReceiverProbe) -> Observation:
    later = int(probe.now().timestamp()) - int(INSIDE_WINDOW_SECONDS)
    return refused(await probe.post_event(changed={TIMESTAMP_HEADER: str(later)}))


@check("changed-id", MUST, "A message whose webhook-id was changed after signing gets 4xx", source=_SIGNED)
async def changed_id(probe: ReceiverProbe) -> Observation:
    event = probe.make_event()
    return refused(await probe.post_event(event, message_id=SIGNED_ID, changed={ID_HEADER: str(event["eventId"])}))


@check("changed-body", MUST, "A body that was changed by one byte after signing gets 4xx", source=_SIGNED)
async def changed_body(probe: ReceiverProbe) -> Observation:
    event = probe.make_event()
    return refused(await probe.post_event(event, sent_body=encode(event) + b" "))


@check(
    "rotation-new-secret-first",
    MUST,
    "With two signatures, the receiver's secret as the second, the message gets 2xx",
    source=_ROTATION,
)
async def rotation_second(probe: ReceiverProbe) -> Observation:
    return accepted(await probe.post_event(secrets=[OTHER_SECRET, probe.secret]))


@check(
    "rotation-new-secret-last",
    MUST,
    "With two signatures, the receiver's secret as the first, the message gets 2xx",
    source=_ROTATION,
)
async def rotation_first(probe: ReceiverProbe) -> Observation:
    return accepted(await probe.post_event(secrets=[probe.secret, OTHER_SECRET]))


@check("two-wrong-signatures", MUST, "Two signatures that both do not match get 4xx", source=_ROTATION)
async def two_wrong_signatures(probe: ReceiverProbe) -> Observation:
    return refused(await probe.post_event(secrets=[OTHER_SECRET, OTHER_SECRET]))


@check(
    "unknown-version-ignored",
    MUST,
    "A v1a signature beside a valid v1 one is ignored: 2xx",
    source="MCP Events, delivery: v1a may stand beside v1. Standard Webhooks: unknown versions are ignored.",
)
async def unknown_version_ignored(probe: ReceiverProbe) -> Observation:
    event = probe.make_event()
    signature = probe.sign(str(event["eventId"]), encode(event))
    return accepted(await probe.post_event(event, changed={SIGNATURE_HEADER: f"v1a,{'A' * 86}== {signature}"}))


@check(
    "unknown-version-alone",
    MUST,
    "A message with an unknown signature version alone gets 4xx",
    source="Standard Webhooks: a message counts as verified only if a signature of a known version matches.",
)
async def unknown_version_alone(probe: ReceiverProbe) -> Observation:
    event = probe.make_event()
    signature = probe.sign(str(event["eventId"]), encode(event)).removeprefix("v1,")
    return refused(await probe.post_event(event, changed={SIGNATURE_HEADER: f"v9,{signature}"}))


@check(
    "malformed-signature", MUST, "A signature header that is no list of signatures gets 4xx, and no 5xx", source=_SIGNED
)
async def malformed_signature(probe: ReceiverProbe) -> Observation:
    return refused(await probe.post_event(changed={SIGNATURE_HEADER: "v1"}))
