from datetime import timedelta

import pytest

from ringback.domain.insights import LATENCY_BOUNDS_MS, LatencyHistogram, latency_bucket


@pytest.mark.parametrize(
    "duration", [timedelta(milliseconds=1), timedelta(hours=70), timedelta(hours=96), timedelta(days=14)]
)
def test_a_percentile_is_an_upper_bound_for_as_long_as_deliveries_are_retried_and_kept(duration: timedelta) -> None:
    milliseconds = round(duration.total_seconds() * 1000)
    counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
    counts[latency_bucket(milliseconds)] = 1

    bound = LatencyHistogram(counts=counts).percentile_ms(0.95)

    assert bound is not None
    assert milliseconds <= bound <= 1.6 * milliseconds
