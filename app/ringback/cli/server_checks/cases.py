"""A case: what the specification expects, and the coroutine that finds out whether a server does it.

    CHAPTER = Chapter("poll")

    @CHAPTER.must("poll-has-more", "`hasMore`, when there, is a boolean", "mcp-events §4: …")
    async def check_has_more(server: ServerUnderTest) -> str:
        has_more = (await server.observe(poll_from_now)).result.get("hasMore", ABSENT)
        expect(has_more is ABSENT or isinstance(has_more, bool), f"hasMore is {has_more!r}")
        return "…"          what was seen

The coroutine returns what it saw, or raises `Violation`, `Deviation` or `Untestable`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NoReturn

import httpx

from ringback.cli.check_report import CheckCase, CheckLevel, CheckResult, CheckVerdict, passed, untestable, violated
from ringback.cli.server_checks.sse import StreamTooLong

if TYPE_CHECKING:
    from ringback.cli.server_checks.subject import ServerUnderTest

Check = Callable[["ServerUnderTest"], Awaitable[str]]

UNREADABLE_RESPONSE: Final = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError, RecursionError)
"""What reading a response raises whose members have other types than the specification's, or a thousand levels."""
FAILED_REQUEST: Final = (httpx.HTTPError, httpx.InvalidURL, StreamTooLong)
"""httpx reads where a redirect leads, although it does not follow it: hence InvalidURL."""


class ImpossibleRun(Exception):
    """The run would check nothing, or something else than the user wants. The message says what to change."""


class Violation(Exception):
    """The server did something else than the case expects. The message says what."""


class Deviation(Exception):
    """The server differs from the case's expectation in a way that clients tolerate: a warning, also for a MUST."""


class Untestable(Exception):
    """This run cannot bring the situation about. The message says what is missing, and which option supplies it."""


@dataclass(frozen=True, slots=True)
class ServerCase:
    case: CheckCase
    chapter: str
    check: Check

    async def run(self, server: "ServerUnderTest") -> CheckResult:
        try:
            return passed(self.case, await self.check(server))
        except Violation as violation:
            return violated(self.case, str(violation))
        except Deviation as deviation:
            return CheckResult(case=self.case, verdict=CheckVerdict.WARNED, observed=str(deviation))
        except Untestable as missing:
            return untestable(self.case, str(missing))
        except (*UNREADABLE_RESPONSE, *FAILED_REQUEST) as error:
            return violated(self.case, describe_failure(error))


@dataclass(frozen=True, slots=True)
class Chapter:
    """The cases of one part of the specification, in the order in which they run."""

    name: str
    cases: list[ServerCase] = field(default_factory=list[ServerCase])

    def must(self, case_id: str, expectation: str, source: str) -> Callable[[Check], Check]:
        return self._add(case_id, CheckLevel.MUST, expectation, source)

    def should(self, case_id: str, expectation: str, source: str) -> Callable[[Check], Check]:
        return self._add(case_id, CheckLevel.SHOULD, expectation, source)

    def needs_fixture(self, level: CheckLevel, case_id: str, expectation: str, source: str, *, missing: str) -> None:
        """Add a case that no request of the protocol can cause. It is listed, so that it does not look like a pass."""

        async def check(_server: "ServerUnderTest") -> str:
            raise Untestable(missing)

        self._add(case_id, level, expectation, source)(check)

    def _add(self, case_id: str, level: CheckLevel, expectation: str, source: str) -> Callable[[Check], Check]:
        def add(check: Check) -> Check:
            case = CheckCase(id=case_id, level=level, expectation=expectation, source=source)
            self.cases.append(ServerCase(case, self.name, check))
            return check

        return add


def describe_failure(error: Exception) -> str:
    """What one of `UNREADABLE_RESPONSE` or `FAILED_REQUEST` says about the server, for a report."""
    failed = (
        "a response has a form that cannot be read"
        if isinstance(error, UNREADABLE_RESPONSE)
        else "the HTTP request failed"
    )
    return f"{failed}: {type(error).__name__}: {error}"


def expect(condition: bool, observed: str) -> None:
    """Raise `Violation` with what was observed, unless the condition holds."""
    if not condition:
        raise Violation(observed)


def fail(observed: str) -> NoReturn:
    raise Violation(observed)
