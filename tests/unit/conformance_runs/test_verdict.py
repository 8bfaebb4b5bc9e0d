"""What a run of the conformance suite comes to: counted by group, and good only when nothing unexpected happened."""

from scripts.conformance_runs.suite import Check
from scripts.conformance_runs.verdict import EXPECTED, judge

PASSED = Check("2026-07-28", "tools-list", "tools-list", "SUCCESS", None)
FAILED = Check("2026-07-28", "tools-list", "tools-name-format", "FAILURE", "a space")
WARNED = Check("2025-11-25", "server-sse-polling", "server-sse-retry-field", "WARNING", "no retry")
SKIPPED = Check("2026-07-28", "tasks-status-notifications", "tasks-status-notifications", "SKIPPED", "a stub")
TOLD = Check("2026-07-28", "server-stateless", "note", "INFO", None)
REVISION, SCENARIO, CHECK = next(iter(EXPECTED))


def expected(status: str) -> Check:
    return Check(REVISION, SCENARIO, CHECK, status, None)


def test_checks_are_counted_by_revision_and_tasks_apart() -> None:
    verdict = judge([PASSED, WARNED, SKIPPED, TOLD])

    assert verdict.good
    assert {name: group.told() for name, group in verdict.groups.items()} == {
        "2026-07-28 core": {
            "scenarios": 2,
            "passed": 1,
            "failed": 0,
            "expected_failures": 0,
            "skipped": 0,
            "warnings": 0,
        },
        "2025-11-25 core": {
            "scenarios": 1,
            "passed": 0,
            "failed": 0,
            "expected_failures": 0,
            "skipped": 0,
            "warnings": 1,
        },
        "2026-07-28 tasks": {
            "scenarios": 1,
            "passed": 0,
            "failed": 0,
            "expected_failures": 0,
            "skipped": 1,
            "warnings": 0,
        },
    }


def test_a_failure_without_a_reason_is_bad() -> None:
    verdict = judge([PASSED, FAILED])

    assert not verdict.good
    assert verdict.unexpected == [FAILED]


def test_a_failure_with_a_reason_is_not() -> None:
    verdict = judge([expected("FAILURE")])

    assert verdict.good
    assert [group.expected for group in verdict.groups.values()] == [1]


def test_a_failure_that_was_expected_and_did_not_come_is_bad() -> None:
    verdict = judge([expected("SUCCESS")])

    assert not verdict.good
    assert verdict.stale == [(REVISION, SCENARIO, CHECK)]


def test_a_check_that_occurs_twice_and_fails_once_is_no_stale_expectation() -> None:
    assert judge([expected("SUCCESS"), expected("FAILURE")]).good


def test_no_tasks_scenario_may_fail() -> None:
    assert not [scenario for _, scenario, _ in EXPECTED if scenario.startswith("tasks-")]


def test_every_expectation_has_a_reason() -> None:
    assert all(len(reason) > len("because") for reason in EXPECTED.values())
