"""Checks of control envelopes: challenges, gap, terminated, and types that no specification names."""

from collections.abc import Mapping
from typing import Any, Final, cast

from ringback.cli.receiver_checks.checks import MUST, OTHER_SECRET, SHOULD, CheckGroup, Observation, accepted, refused
from ringback.cli.receiver_checks.probe import Answer, ReceiverProbe

_ECHO: Final = "MCP Events, delivery: the challenge needs 2xx with JSON {challenge: the same}."
_NOTICES: Final = (
    "MCP Events, delivery: gap and terminated are for the application, which answers 2xx once it has them."
)
_REVOKED: Final[Mapping[str, Any]] = {"code": -32012, "message": "Forbidden: a check of the receiver", "data": {}}

CHALLENGE_SECONDS: Final = 5.0
"""How long Ringback waits for an echo (mcp-events §8)."""

check: Final = CheckGroup()
check_at_the_end: Final = CheckGroup()
"""Checks that end the subscription, so they come after all others."""


def _echoes(answer: Answer, challenge: str) -> bool:
    document = answer.document
    return isinstance(document, dict) and cast("dict[str, Any]", document).get("challenge") == challenge


def _describe(answer: Answer, challenge: str) -> str:
    return f"{answer}, {'with' if _echoes(answer, challenge) else 'without'} the challenge"


async def _challenge(probe: ReceiverProbe, challenge: str, **sent: Any) -> Answer:
    return await probe.post_envelope({"type": "verification", "challenge": challenge}, **sent)


@check("challenge-echoed", MUST, "A signed challenge gets 2xx and JSON with the same challenge", source=_ECHO)
async def challenge_echoed(probe: ReceiverProbe) -> Observation:
    challenge = probe.new_id()
    answer = await _challenge(probe, challenge)
    return answer.is_accepted and _echoes(answer, challenge), _describe(answer, challenge)


@check(
    "challenge-in-time",
    MUST,
    "A challenge is echoed within 5 seconds",
    source="MCP Events, delivery: events/subscribe waits for the echo; a timeout fails it.",
)
async def challenge_in_time(probe: ReceiverProbe) -> Observation:
    challenge = probe.new_id()
    answer = await _challenge(probe, challenge)
    return _echoes(answer, challenge) and answer.seconds <= CHALLENGE_SECONDS, f"{answer} after {answer.seconds:.1f} s"


@check("challenge-exact", MUST, "A challenge with every kind of character comes back unchanged", source=_ECHO)
async def challenge_exact(probe: ReceiverProbe) -> Observation:
    challenge = f'{probe.new_id()} +/=_-.~ "\\ ünïcode \N{SNOWMAN}'
    answer = await _challenge(probe, challenge)
    return answer.is_accepted and _echoes(answer, challenge), _describe(answer, challenge)


@check(
    "challenge-wrong-secret",
    MUST,
    "A challenge that another secret signed is not echoed and gets 4xx",
    source="MCP Events, delivery: control envelopes are signed like events; an echo without a check proves nothing.",
)
async def challenge_wrong_secret(probe: ReceiverProbe) -> Observation:
    challenge = probe.new_id()
    answer = await _challenge(probe, challenge, secrets=[OTHER_SECRET])
    return answer.is_refused and not _echoes(answer, challenge), _describe(answer, challenge)


@check(
    "challenge-before-id",
    SHOULD,
    "A challenge for a subscription id that the receiver does not know yet is echoed",
    source="SEP-3415 draft: the receiver does not know the id yet, and tests every secret without an id.",
)
async def challenge_before_id(probe: ReceiverProbe) -> Observation:
    challenge = probe.new_id()
    answer = await _challenge(probe, challenge, subscription_id=f"sub_{probe.new_id()}")
    return answer.is_accepted and _echoes(answer, challenge), _describe(answer, challenge)


@check(
    "challenge-repeated",
    MUST,
    "A second challenge is echoed as the first",
    source="MCP Events, verification: each new subscription and each new URL may be challenged.",
)
async def challenge_repeated(probe: ReceiverProbe) -> Observation:
    challenges = [probe.new_id(), probe.new_id()]
    answers = [await _challenge(probe, each) for each in challenges]
    observed = "; ".join(map(_describe, answers, challenges))
    return all(map(_echoes, answers, challenges)), observed


@check("challenge-malformed", SHOULD, "A verification without a challenge gets 4xx", source=_ECHO)
async def challenge_malformed(probe: ReceiverProbe) -> Observation:
    return refused(await probe.post_envelope({"type": "verification"}))


@check("gap", SHOULD, "A signed gap with a string cursor gets 2xx", source=_NOTICES)
async def gap(probe: ReceiverProbe) -> Observation:
    return accepted(await probe.post_envelope({"type": "gap", "cursor": f"check-{probe.new_id()}"}))


@check("gap-wrong-secret", MUST, "A gap that another secret signed gets 4xx", source=_NOTICES)
async def gap_wrong_secret(probe: ReceiverProbe) -> Observation:
    return refused(await probe.post_envelope({"type": "gap", "cursor": "check"}, secrets=[OTHER_SECRET]))


@check("terminated-wrong-secret", MUST, "A terminated envelope that another secret signed gets 4xx", source=_NOTICES)
async def terminated_wrong_secret(probe: ReceiverProbe) -> Observation:
    return refused(await probe.post_envelope({"type": "terminated", "error": _REVOKED}, secrets=[OTHER_SECRET]))


@check(
    "unknown-envelope",
    SHOULD,
    "A control envelope of an unknown type gets 4xx",
    source="MCP Events, delivery: a top-level type marks a control envelope; unknown types get 400.",
)
async def unknown_envelope(probe: ReceiverProbe) -> Observation:
    return refused(await probe.post_envelope({"type": "ringback-check", "anything": True}))


@check_at_the_end("terminated", SHOULD, "A signed terminated envelope gets 2xx", source=_NOTICES)
async def terminated(probe: ReceiverProbe) -> Observation:
    return accepted(await probe.post_envelope({"type": "terminated", "error": _REVOKED}))
