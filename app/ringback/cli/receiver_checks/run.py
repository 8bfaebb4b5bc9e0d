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
NO_MEANING: Final = "the receiver accepts no signed event, so a refusal means nothing"


async def run_receiver_checks(probe: ReceiverProbe) -> Sequence[CheckResult]:
    """A receiver that accepts no signed event, as at a wrong URL, passes no check that expects a refusal."""
    first = await signatures.valid_event.check(probe)
    is_accepting = first.verdict is CheckVerdict.PASSED
    return [first, *[await _run_check(each, probe, is_accepting=is_accepting) for each in ALL_CHECKS[1:]]]


async def _run_check(check: ReceiverCheck, probe: ReceiverProbe, *, is_accepting: bool) -> CheckResult:
    if check.expects_refusal and not is_accepting:
        return untestable(check.case, NO_MEANING)
    return await check.check(probe)


def find_unaccepted(results: Sequence[CheckResult]) -> str | None:
    """What the receiver answered to a signed event, if it did not accept it."""
    first = next(each for each in results if each.case == signatures.valid_event.case)
    return None if first.verdict is CheckVerdict.PASSED else first.observed
