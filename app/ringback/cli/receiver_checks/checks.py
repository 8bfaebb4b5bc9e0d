"""A check: its case as data, and the function that judges the receiver."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from ringback.cli.check_report import CheckCase, CheckLevel, CheckResult, judge
from ringback.cli.receiver_checks.probe import Answer, ReceiverProbe
from ringback.signing.secrets import SECRET_BYTES, generate_secret

Observation = tuple[bool, str]
"""Whether the receiver did what the case expects, and what it did."""
Run = Callable[[ReceiverProbe], Awaitable[Observation]]

MUST: Final = CheckLevel.MUST
SHOULD: Final = CheckLevel.SHOULD
OTHER_SECRET: Final = generate_secret(b"\x5a" * SECRET_BYTES)
"""A secret that no receiver accepts: it is public."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverCheck:
    case: CheckCase
    run: Run

    async def check(self, probe: ReceiverProbe) -> CheckResult:
        ok, observed = await self.run(probe)
        return judge(self.case, ok, observed)


class CheckGroup:
    """The checks of one module, in the order in which they run. A decorator of their functions."""

    def __init__(self) -> None:
        self.checks: list[ReceiverCheck] = []

    def __call__(
        self, case_id: str, level: CheckLevel, expectation: str, *, source: str
    ) -> Callable[[Run], ReceiverCheck]:
        def add(run: Run) -> ReceiverCheck:
            case = CheckCase(id=case_id, level=level, expectation=expectation, source=source)
            self.checks.append(ReceiverCheck(case=case, run=run))
            return self.checks[-1]

        return add


def accepted(answer: Answer) -> Observation:
    return answer.is_accepted, str(answer)


def refused(answer: Answer) -> Observation:
    return answer.is_refused, str(answer)


def survived(answer: Answer) -> Observation:
    """Any answer but a 5xx: the receiver decided about the request, and did not fail on it."""
    return not answer.is_server_error, str(answer)


def all_accepted(*answers: Answer) -> Observation:
    return all(answer.is_accepted for answer in answers), ", ".join(map(str, answers))
