"""The results of the checks by group, and the expected failures with their reasons."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from scripts.conformance_runs.suite import Check

_SAMPLES: Final = (
    "The fixture has no tool that samples or lists roots: Ringback never declares these capabilities to an upstream, "
    "because the client may have disconnected."
)

Key = tuple[str, str, str]
"""(revision, scenario, check). A check may occur several times in a scenario."""

EXPECTED_FAILURES: Final[Mapping[Key, str]] = {
    ("2025-11-25", "tools-call-sampling", "tools-call-sampling"): _SAMPLES,
    ("2026-07-28", "input-required-result-basic-sampling", "sep-2322-sampling-incomplete"): _SAMPLES,
    ("2026-07-28", "input-required-result-basic-list-roots", "sep-2322-list-roots-incomplete"): _SAMPLES,
    ("2026-07-28", "input-required-result-multiple-input-requests", "sep-2322-multiple-inputs-incomplete"): _SAMPLES,
    ("2026-07-28", "input-required-result-capability-check", "sep-2322-respect-client-capabilities"): _SAMPLES,
}
"""Expected failures. An entry whose check passes is an error in this list."""


@dataclass(slots=True)
class Group:
    """Counts of checks. A scenario that the suite only stubs counts as skipped."""

    scenarios: set[str] = field(default_factory=set[str])
    passed: int = 0
    failed: int = 0
    expected: int = 0
    skipped: int = 0
    warnings: int = 0
    """Recommendations of the specification that are not met."""

    def to_json(self) -> dict[str, int]:
        return {
            "scenarios": len(self.scenarios),
            "passed": self.passed,
            "failed": self.failed,
            "expected_failures": self.expected,
            "skipped": self.skipped,
            "warnings": self.warnings,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    groups: Mapping[str, Group]
    unexpected: Sequence[Check]
    """Unexpected failures."""
    stale: Sequence[Key]
    """Expected failures that passed."""
    notes: Sequence[Check]
    """Warnings and skipped checks."""

    @property
    def is_good(self) -> bool:
        return not self.unexpected and not self.stale

    def to_json(self) -> dict[str, Any]:
        return {
            "good": self.is_good,
            "groups": {name: group.to_json() for name, group in self.groups.items()},
            "unexpected": [format_check(check) for check in self.unexpected],
            "stale": [list(key) for key in self.stale],
            "notes": [format_check(check) for check in self.notes],
            "expected": [[*key, reason] for key, reason in EXPECTED_FAILURES.items()],
        }


def judge_checks(checks: Iterable[Check]) -> Verdict:
    groups: dict[str, Group] = {}
    unexpected: list[Check] = []
    notes: list[Check] = []
    revisions: set[str] = set()
    failed: set[Key] = set()
    for check in checks:
        group = groups.setdefault(_group(check), Group())
        group.scenarios.add(check.scenario)
        revisions.add(check.revision)
        key = (check.revision, check.scenario, check.id)
        match check.status:
            case "FAILURE":
                failed.add(key)
                group.expected += key in EXPECTED_FAILURES
                group.failed += key not in EXPECTED_FAILURES
                unexpected += [] if key in EXPECTED_FAILURES else [check]
            case "SUCCESS":
                group.passed += 1
            case "SKIPPED":
                group.skipped += 1
                notes.append(check)
            case "WARNING":
                group.warnings += 1
                notes.append(check)
            case _:
                pass  # INFO is not a result
    stale = [key for key in EXPECTED_FAILURES if key[0] in revisions and key not in failed]
    return Verdict(groups, unexpected, stale, notes)


def _group(check: Check) -> str:
    return f"{check.revision} tasks" if check.scenario.startswith("tasks-") else f"{check.revision} core"


def format_check(check: Check) -> dict[str, Any]:
    return {
        "revision": check.revision,
        "scenario": check.scenario,
        "check": check.id,
        "status": check.status,
        "message": check.message,
    }
