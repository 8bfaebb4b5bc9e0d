"""Runs all checks, one after the other: a receiver that handles one request at a time answers them all."""

from collections.abc import Sequence
from typing import Final

from ringback.cli.check_report import CheckResult, CheckVerdict, untestable
from ringback.cli.receiver_checks import bodies, envelopes, requests, signatures
from ringback.cli.receiver_checks.checks import ReceiverCheck
from ringback.cli.receiver_checks.probe import ReceiverProbe

ALL_CHECKS: Final[Sequence[ReceiverCheck]] = (
    *signatures.check.checks,
    *envelopes.check.checks,
    *bodies.check.checks,
    *requests.check.checks,
    *envelopes.check_at_the_end.checks,
)
NO_MEANING: Final = "the receiver accepts no signed event, so what it answers to others means nothing"


async def run_receiver_checks(probe: ReceiverProbe) -> Sequence[CheckResult]:
    """A receiver that does not accept the first event, as at a wrong URL or one that hangs, gets no other request."""
    first, *others = ALL_CHECKS
    result = await first.check(probe)
    if result.verdict is not CheckVerdict.PASSED:
        return [result, *(untestable(each.case, NO_MEANING) for each in others)]
    return [result, *[await each.check(probe) for each in others]]


def find_unaccepted(results: Sequence[CheckResult]) -> str | None:
    """What the receiver answered to a signed event, if it did not accept it."""
    first = next(each for each in results if each.case == signatures.valid_event.case)
    return None if first.verdict is CheckVerdict.PASSED else first.observed
