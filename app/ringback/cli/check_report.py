"""The report of `ringback check-receiver` and `ringback check-server`: a table, or JSON, and the exit code.

A case says what the specification expects and quotes where it says so; a result says what the peer did. Cases are data, so a
list of them can be printed, counted and tied to tests without a peer.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import httpx
import typer

from ringback.cli.output import EXIT_NO_RESULT, print_json, print_output, print_table

OBSERVED_LENGTH_MAX: Final = 300
"""Characters of what a peer did: a status, a code and the beginning of its message. A peer's text may be of any length."""


class CheckLevel(StrEnum):
    """The word of the specification (RFC 2119)."""

    MUST = "MUST"
    SHOULD = "SHOULD"


class CheckVerdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    """What a MUST demands did not happen. The command exits with 1."""
    WARNED = "warned"
    """What a SHOULD recommends did not happen."""
    UNTESTABLE = "untestable"
    """This run could not bring the situation about. `observed` says what was missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckCase:
    """One expectation."""

    id: str
    """Lower-case words with hyphens, unique within its command."""
    level: CheckLevel
    expectation: str
    """What the peer does, as a sentence without a full stop."""
    source: str
    """The specification's sentence, in our words, and where it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    case: CheckCase
    verdict: CheckVerdict
    observed: str
    """What the peer did, in words for a person; at most `OBSERVED_LENGTH_MAX` characters are printed."""


def passed(case: CheckCase, observed: str) -> CheckResult:
    return CheckResult(case=case, verdict=CheckVerdict.PASSED, observed=observed)


def violated(case: CheckCase, observed: str) -> CheckResult:
    """The peer did something else: a failure for a MUST, a warning for a SHOULD."""
    verdict = CheckVerdict.FAILED if case.level is CheckLevel.MUST else CheckVerdict.WARNED
    return CheckResult(case=case, verdict=verdict, observed=observed)


def untestable(case: CheckCase, missing: str) -> CheckResult:
    """`missing` says what the run lacked."""
    return CheckResult(case=case, verdict=CheckVerdict.UNTESTABLE, observed=missing)


def judge(case: CheckCase, ok: bool, observed: str) -> CheckResult:
    return passed(case, observed) if ok else violated(case, observed)


def describe_url(url: str) -> str:
    """The URL of a peer for a report, which may become public: without user information and query, where secrets stand."""
    return str(httpx.URL(url).copy_with(userinfo=b"", query=None))


def print_report(results: Sequence[CheckResult], *, about: str, as_json: bool) -> None:
    """Print a row for each result, the sources of what was violated, and the counts. `about` names the peer."""
    if as_json:
        print_json({"about": about, "counts": _count_verdicts(results), "checks": [_to_json(each) for each in results]})
        return
    print_table(("verdict", "level", "check", "expectation", "observed"), map(_to_row, results))
    violations = [each for each in results if each.verdict in {CheckVerdict.FAILED, CheckVerdict.WARNED}]
    for result in violations:
        print_output(f"{result.case.level} {result.case.id}: {result.case.source}")
    counts = ", ".join(f"{count} {verdict}" for verdict, count in _count_verdicts(results).items())
    print_output(f"{about}: {len(results)} checks: {counts}")


def exit_for_results(results: Sequence[CheckResult]) -> None:
    """End the command with 1 if a MUST was violated. Warnings and untestable checks leave the exit code at 0."""
    if any(result.verdict is CheckVerdict.FAILED for result in results):
        raise typer.Exit(EXIT_NO_RESULT)


def _count_verdicts(results: Sequence[CheckResult]) -> dict[str, int]:
    counts = Counter(str(result.verdict) for result in results)
    return {str(verdict): counts[verdict] for verdict in CheckVerdict}


def _to_row(result: CheckResult) -> dict[str, Any]:
    return {
        "verdict": str(result.verdict),
        "level": str(result.case.level),
        "check": result.case.id,
        "expectation": result.case.expectation,
        "observed": result.observed[:OBSERVED_LENGTH_MAX],
    }


def _to_json(result: CheckResult) -> dict[str, Any]:
    return {
        "id": result.case.id,
        "level": str(result.case.level),
        "verdict": str(result.verdict),
        "expectation": result.case.expectation,
        "observed": result.observed[:OBSERVED_LENGTH_MAX],
        "source": result.case.source,
    }
