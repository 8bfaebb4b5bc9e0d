"""The poll interval of a task: the upstream's own within bounds, else a share of the elapsed time."""

import pytest

from ringback.protocol.tasks import compute_poll_seconds


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
    assert compute_poll_seconds(milliseconds, elapsed_seconds=10_000) == expected


@pytest.mark.parametrize("nothing", [None, True, "500", [500], float("nan"), float("inf")])
@pytest.mark.parametrize(("followed", "expected"), [(0, 2.0), (40, 2.0), (600, 30.0), (86_400, 60.0)])
def test_without_an_interval_the_end_is_noticed_late_by_a_twentieth_at_most(
    nothing: object, followed: float, expected: float
) -> None:
    assert compute_poll_seconds(nothing, elapsed_seconds=followed) == pytest.approx(expected)
