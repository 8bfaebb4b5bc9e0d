"""The charts of the first page say exactly what they count."""

from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.insights import LATENCY_BOUNDS_MS, HourInsights, LatencyHistogram, latency_bucket
from ringback.ui.charts.drawing import Chart
from ringback.ui.charts.home_charts import draw_home_charts, format_milliseconds, sum_hours

FIRST_HOUR = datetime(2026, 11, 22, 7, tzinfo=UTC)


def make_latencies(*milliseconds: int) -> LatencyHistogram:
    counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)
    for each in milliseconds:
        counts[latency_bucket(each)] += 1
    return LatencyHistogram(counts=counts)


def make_day() -> list[HourInsights]:
    """A day without work but in its last hour."""
    hours = [HourInsights(hour=FIRST_HOUR + timedelta(hours=number)) for number in range(23)]
    last = HourInsights(
        hour=FIRST_HOUR + timedelta(hours=23),
        calls_started=1300,
        calls_by_outcome=MappingProxyType({CallOutcome.RESULT: 1999, CallOutcome.TIMED_OUT: 1}),
        attempts_by_category=MappingProxyType({AttemptCategory.DELIVERED: 3, AttemptCategory.HTTP_5XX: 1}),
        delivery_latency=make_latencies(40, 40, 398),
        queued_calls_max=7,
    )
    return [*hours, last]


def draw_day(hours: list[HourInsights]) -> dict[str, Chart]:
    charts = draw_home_charts(hours, shows_queues=True)
    return dict(zip(("ended", "latency", "success", "queues"), charts, strict=True))


def test_each_chart_says_what_it_counts_and_in_which_time() -> None:
    charts = draw_day(make_day())

    assert [chart.caption for chart in charts.values()] == [
        "Calls that ended, by outcome, per hour (UTC)",
        "Time from the creation of a delivery to the receiver's 2xx, percentiles per hour (UTC)",
        "Success rate of calls and of delivery attempts, in percent per hour (UTC)",
        "Queue depth, the largest sample of each hour (UTC)",
    ]
    assert [chart.summary for chart in charts.values()] == [
        "In the last 24 hours: 1,999 result, 1 timed out.",
        "In the last 24 hours, 3 deliveries: p50 ≤ 40 ms, p95 ≤ 398 ms, p99 ≤ 398 ms.",
        "In the last 24 hours: 99.9 % of 2,000 ended calls had a result; 75 % of 4 attempts got a 2xx.",
        "In the last 24 hours: at most 7 calls and 0 deliveries waited.",
    ]


def test_the_table_of_a_chart_has_its_numbers_and_no_hour_without_any() -> None:
    charts = draw_day(make_day())

    assert [chart.table_rows[0] for chart in charts.values()] == [
        ["2026-11-23 06:00", "1,999", "0", "0", "0", "1", "0", "0"],
        ["2026-11-23 06:00", "≤ 40 ms", "≤ 398 ms", "≤ 398 ms"],
        ["2026-11-23 06:00", "99.9 %", "75 %"],
        ["2026-11-23 06:00", "7", "0"],
    ]
    assert [len(charts[name].table_rows) for name in ("ended", "latency", "success")] == [1, 1, 1]
    assert [tick.label for tick in charts["latency"].value_ticks] == ["10 ms", "100 ms", "1 s"]


def test_charts_without_any_number_are_empty() -> None:
    quiet = make_day()[:-1]

    assert [chart.is_empty for chart in draw_home_charts(quiet, shows_queues=True)] == [True] * 4
    assert sum_hours(quiet).result_share is None
    assert len(draw_home_charts(quiet, shows_queues=False)) == 3


def test_a_share_of_almost_all_is_not_rounded_up_to_all() -> None:
    sums = sum_hours(make_day())

    assert (sums.result_share, sums.delivered_share, sums.latency_p95_ms) == ("99.9 %", "75 %", 398)


def test_labels_of_an_axis_of_durations_are_short() -> None:
    shown = [format_milliseconds(10.0**exponent) for exponent in range(9)]

    assert shown == ["1 ms", "10 ms", "100 ms", "1 s", "10 s", "1.7 min", "16.7 min", "2.8 h", "1.2 d"]
