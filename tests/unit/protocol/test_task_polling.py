"""Polling of a task: the interval, which is the upstream's own within bounds, and when a task counts as lost."""

import pytest

from ringback.protocol.errors import InvalidUpstreamResponse, RequestFailed, UpstreamError
from ringback.protocol.tasks import CONSECUTIVE_ERRORS_MAX, LOST_AFTER_SECONDS, TaskPolling, compute_poll_seconds


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [
        (500, 0.5),
        (2500.0, 2.5),
        (0, 0.1),
        (-1, 0.1),
        (10**9, 60.0),
        pytest.param(10**400, 60.0, id="400 digits"),
    ],
)
def test_the_interval_of_the_upstream_is_used_within_bounds(milliseconds: float, expected: float) -> None:
    assert compute_poll_seconds(milliseconds, elapsed_seconds=10) == expected


@pytest.mark.parametrize(
    ("milliseconds", "followed", "expected"),
    [(1, 50, 0.5), (1, 200, 2.0), (1, 86_400, 2.0), (500, 50, 0.5), (500, 86_400, 2.0), (5000, 86_400, 5.0)],
)
def test_a_task_that_runs_long_is_not_polled_more_often_than_its_end_is_worth(
    milliseconds: float, followed: float, expected: float
) -> None:
    """A server with an interval of a tenth of a second took a core with fifty tasks, for hours."""
    assert compute_poll_seconds(milliseconds, elapsed_seconds=followed) == pytest.approx(expected)


@pytest.mark.parametrize("nothing", [None, True, "500", [500], float("nan"), float("inf")])
@pytest.mark.parametrize(("followed", "expected"), [(0, 2.0), (40, 2.0), (600, 30.0), (86_400, 60.0)])
def test_without_an_interval_the_end_is_noticed_late_by_a_twentieth_at_most(
    nothing: object, followed: float, expected: float
) -> None:
    assert compute_poll_seconds(nothing, elapsed_seconds=followed) == pytest.approx(expected)


@pytest.mark.requirement("R33")
@pytest.mark.parametrize(
    "failure", [UpstreamError({"code": -32603, "message": "busy"}), InvalidUpstreamResponse("500")]
)
def test_a_task_counts_as_lost_after_many_errors_over_minutes(failure: RequestFailed) -> None:
    """At the shortest interval, an upstream whose database was away for a second lost its tasks."""
    now = 1000.0
    polling = TaskPolling(lambda: now)

    at_once = [polling.counts_as_lost(failure) for _ in range(5 * CONSECUTIVE_ERRORS_MAX)]
    now += LOST_AFTER_SECONDS
    later = polling.counts_as_lost(failure)
    polling.reset_errors()
    again = [polling.counts_as_lost(failure) for _ in range(5 * CONSECUTIVE_ERRORS_MAX)]

    assert (any(at_once), later, any(again)) == (False, True, False)
