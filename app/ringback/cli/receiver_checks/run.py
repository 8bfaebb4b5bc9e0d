"""Runs all checks, one after the other: a receiver that handles one request at a time answers them all."""

from collections.abc import Sequence
from typing import Final

from ringback.cli.check_report import CheckResult
from ringback.cli.receiver_checks.bodies import BODY_CHECKS
from ringback.cli.receiver_checks.checks import ReceiverCheck
from ringback.cli.receiver_checks.envelopes import ENVELOPE_CHECKS, LAST_CHECKS
from ringback.cli.receiver_checks.probe import ReceiverProbe
from ringback.cli.receiver_checks.requests import REQUEST_CHECKS
from ringback.cli.receiver_checks.signatures import SIGNATURE_CHECKS

ALL_CHECKS: Final[Sequence[ReceiverCheck]] = (
    *SIGNATURE_CHECKS,
    *ENVELOPE_CHECKS,
    *BODY_CHECKS,
    *REQUEST_CHECKS,
    *LAST_CHECKS,
)


async def run_receiver_checks(probe: ReceiverProbe) -> Sequence[CheckResult]:
    return [await each.check(probe) for each in ALL_CHECKS]
