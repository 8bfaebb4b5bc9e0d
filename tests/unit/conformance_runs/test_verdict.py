"""The verdict of a conformance run: counts by group, and good only without unexpected results."""

from scripts.conformance_runs.suite import Check
from scripts.conformance_runs.verdict import EXPECTED_FAILURES, judge_checks

PASSED = Check("2026-07-28", "tools-list", "tools-list", "SUCCESS", None)
FAILED = Check("2026-07-28", "tools-list", "tools-name-format", "FAILURE", "a space")
WARNED = Check("2025-11-25", "server-sse-polling", "server-sse-retry-field", "WARNING", "no retry")
SKIPPED = Check("2026-07-28", "tasks-status-notifications", "tasks-status-notifications", "SKIPPED", "a stub")
SUMMARY_TEXT = Check("2026-07-28", "server-stateless", "note", "INFO", None)
AS_EXPECTED = [Check(*key, "FAILURE", None) for key in EXPECTED_FAILURES]
FIRST = next(iter(EXPECTED_FAILURES))


def test_checks_are_counted_by_revision_and_tasks_apart() -> None:
    verdict = judge_checks([PASSED, WARNED, SKIPPED, SUMMARY_TEXT])

    assert {name: group.to_json() for name, group in verdict.groups.items()} == {
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
    verdict = judge_checks([*AS_EXPECTED, PASSED, FAILED])

    assert not verdict.is_good
    assert verdict.unexpected == [FAILED]


def test_a_failure_with_a_reason_is_not() -> None:
    verdict = judge_checks([PASSED, *AS_EXPECTED])

    assert verdict.is_good
    assert sum(group.expected for group in verdict.groups.values()) == len(EXPECTED_FAILURES)


def test_an_expected_failure_that_passes_is_bad() -> None:
    passed = judge_checks([*AS_EXPECTED[1:], Check(*FIRST, "SUCCESS", None)])
    absent = judge_checks([PASSED, WARNED, *AS_EXPECTED[1:]])

    assert not passed.is_good
    assert passed.stale == absent.stale == [FIRST]


def test_nothing_is_expected_of_a_revision_that_was_not_run() -> None:
    assert judge_checks([check for check in AS_EXPECTED if check.revision == "2026-07-28"]).is_good


def test_a_check_that_occurs_twice_and_fails_once_is_no_stale_expectation() -> None:
    assert judge_checks([Check(*FIRST, "SUCCESS", None), *AS_EXPECTED]).is_good


def test_no_tasks_scenario_may_fail() -> None:
    assert not [scenario for _, scenario, _ in EXPECTED_FAILURES if scenario.startswith("tasks-")]


def test_every_expectation_has_a_reason() -> None:
    assert all(len(reason) > len("because") for reason in EXPECTED_FAILURES.values())
