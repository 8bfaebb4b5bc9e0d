"""The charts and sums of the first page, from the hours of an overview."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import reduce
from operator import add
from typing import Final

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.insights import HourInsights, LatencyHistogram, UpstreamInsights
from ringback.ui.charts.drawing import Chart
from ringback.ui.charts.line_charts import Sparkline, ValueSeries, draw_lines, draw_sparkline
from ringback.ui.charts.scales import make_count_scale, make_linear_scale, make_logarithmic_scale
from ringback.ui.charts.stacked_bars import CountSeries, draw_stacked_bars

PERCENTILES: Final = ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"))
_NOT_OVER: Final = "The last hour is not over."


@dataclass(frozen=True, slots=True, kw_only=True)
class OverviewSums:
    """Sums over all hours."""

    calls_started: int
    calls_ended: int
    calls_with_result: int
    attempts: int
    attempts_delivered: int
    latency_p95_ms: int | None
    started_line: Sparkline

    @property
    def result_share(self) -> str | None:
        return _share(self.calls_with_result, self.calls_ended)

    @property
    def delivered_share(self) -> str | None:
        return _share(self.attempts_delivered, self.attempts)


def sum_hours(hours: Sequence[HourInsights]) -> OverviewSums:
    started = [hour.calls_started for hour in hours]
    latency = reduce(add, (hour.delivery_latency for hour in hours), LatencyHistogram())
    return OverviewSums(
        calls_started=sum(started),
        calls_ended=sum(_ended(hour) for hour in hours),
        calls_with_result=sum(_with_result(hour) for hour in hours),
        attempts=sum(_attempts(hour) for hour in hours),
        attempts_delivered=sum(_delivered(hour) for hour in hours),
        latency_p95_ms=latency.percentile_ms(0.95),
        started_line=draw_sparkline(started, summary=f"Calls started per hour: at most {max(started, default=0):,}."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamRow:
    """The calls to one upstream, as the table has them."""

    upstream: str
    calls_started: int
    calls_ended: int
    result_share: str | None
    """None if no call ended."""
    duration_p50: str | None
    duration_p95: str | None


def rank_upstreams(upstreams: Sequence[UpstreamInsights]) -> Sequence[UpstreamRow]:
    """In the order of the overview: the slowest first."""
    return [
        UpstreamRow(
            upstream=each.upstream,
            calls_started=each.calls_started,
            calls_ended=(ended := sum(each.calls_by_outcome.values())),
            result_share=_share(each.calls_by_outcome.get(CallOutcome.RESULT, 0), ended),
            duration_p50=_format_percentile(each.call_duration, 0.5),
            duration_p95=_format_percentile(each.call_duration, 0.95),
        )
        for each in upstreams
    ]


def draw_home_charts(hours: Sequence[HourInsights], *, shows_queues: bool) -> Sequence[Chart]:
    """`shows_queues`: whether the viewer sees all principals; the samples of the queues are of all of them."""
    charts = [draw_ended_calls(hours), draw_delivery_latency(hours), draw_success_rates(hours)]
    return [*charts, draw_queues(hours)] if shows_queues else charts


def draw_ended_calls(hours: Sequence[HourInsights]) -> Chart:
    series = [
        CountSeries(label=outcome.replace("_", " "), counts=[hour.calls_by_outcome.get(outcome, 0) for hour in hours])
        for outcome in CallOutcome
    ]
    parts = [f"{sum(each.counts):,} {each.label}" for each in series if sum(each.counts)]
    return draw_stacked_bars(
        caption="Calls that ended, by outcome, per hour (UTC)",
        hours=_times(hours),
        series=series,
        summary=f"{_span(hours)}: {', '.join(parts) or 'no call ended'}.",
        note=f"Counted in the hour in which they ended, whenever they started. {_NOT_OVER}",
    )


def draw_delivery_latency(hours: Sequence[HourInsights]) -> Chart:
    series = [
        ValueSeries(label=label, values=[hour.delivery_latency.percentile_ms(share) for hour in hours])
        for share, label in PERCENTILES
    ]
    measured = [value for each in series for value in each.values if value is not None] or [1]
    return draw_lines(
        caption="Time from the creation of a delivery to the receiver's 2xx, percentiles per hour (UTC)",
        hours=_times(hours),
        series=series,
        scale=make_logarithmic_scale(min(measured), max(measured), label=format_milliseconds),
        format_value=format_bound,
        summary=_summarise_percentiles(hours),
        note=(
            "Deliveries that succeeded in that hour; time on hold and between attempts is included. A value is the upper bound "
            f"of its bucket (1, 2, 3, 4, 6, 10, 16, 25, 40, 63, 100 ms …). The axis is logarithmic. {_NOT_OVER}"
        ),
    )


def draw_success_rates(hours: Sequence[HourInsights]) -> Chart:
    series = [
        ValueSeries(
            label="calls that ended with a result",
            values=[_percent(_with_result(hour), _ended(hour)) for hour in hours],
        ),
        ValueSeries(
            label="attempts that got a 2xx", values=[_percent(_delivered(hour), _attempts(hour)) for hour in hours]
        ),
    ]
    sums = sum_hours(hours)
    return draw_lines(
        caption="Success rate of calls and of delivery attempts, in percent per hour (UTC)",
        hours=_times(hours),
        series=series,
        scale=make_linear_scale(100, steps=4, label=_format_percent),
        format_value=_format_percent,
        summary=(
            f"{_span(hours)}: {sums.result_share or 'none'} of {sums.calls_ended:,} ended calls had a result; "
            f"{sums.delivered_share or 'none'} of {sums.attempts:,} attempts got a 2xx."
        ),
        note=(
            "Calls: outcome result, out of all that ended. Attempts: a delivery that succeeds at its third attempt counts as "
            f"one success and two failures. {_NOT_OVER}"
        ),
    )


def draw_queues(hours: Sequence[HourInsights]) -> Chart:
    series = [
        ValueSeries(label="calls that wait for a runner", values=[hour.queued_calls_max for hour in hours]),
        ValueSeries(
            label="deliveries that wait for an attempt", values=[hour.pending_deliveries_max for hour in hours]
        ),
    ]
    maxima = [max(hour.queued_calls_max for hour in hours), max(hour.pending_deliveries_max for hour in hours)]
    return draw_lines(
        caption="Queue depth, the largest sample of each hour (UTC)",
        hours=_times(hours),
        series=series if any(maxima) else (),
        scale=make_count_scale(max(maxima), label=_format_count),
        format_value=_format_count,
        summary=f"{_span(hours)}: at most {maxima[0]:,} calls and {maxima[1]:,} deliveries waited.",
        note=f"Of all principals. A queue that grew and drained between two samples is not seen. {_NOT_OVER}",
        empty_text="No sample saw a call or a delivery waiting.",
    )


def format_milliseconds(milliseconds: float) -> str:
    """A duration in its largest whole unit, as an axis has it: `100 ms`, `2.5 s`, `16.7 min`, `2.8 h`."""
    for size, unit in ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s")):
        if milliseconds >= size:
            return f"{milliseconds / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{round(milliseconds)} ms"


def format_bound(milliseconds: float) -> str:
    """A percentile: the bucket of a histogram ends there."""
    return f"≤ {format_milliseconds(milliseconds)}"


def _summarise_percentiles(hours: Sequence[HourInsights]) -> str:
    latency = reduce(add, (hour.delivery_latency for hour in hours), LatencyHistogram())
    values = [(label, latency.percentile_ms(share)) for share, label in PERCENTILES]
    parts = [f"{label} {format_bound(value)}" for label, value in values if value is not None]
    return f"{_span(hours)}, {latency.total:,} deliveries: {', '.join(parts) or 'none succeeded'}."


def _format_percentile(histogram: LatencyHistogram, share: float) -> str | None:
    milliseconds = histogram.percentile_ms(share)
    return None if milliseconds is None else format_bound(milliseconds)


def _times(hours: Sequence[HourInsights]) -> Sequence[datetime]:
    return [hour.hour for hour in hours]


def _span(hours: Sequence[HourInsights]) -> str:
    return f"In the last {len(hours)} hours"


def _ended(hour: HourInsights) -> int:
    return sum(hour.calls_by_outcome.values())


def _with_result(hour: HourInsights) -> int:
    return hour.calls_by_outcome.get(CallOutcome.RESULT, 0)


def _attempts(hour: HourInsights) -> int:
    return sum(hour.attempts_by_category.values())


def _delivered(hour: HourInsights) -> int:
    return hour.attempts_by_category.get(AttemptCategory.DELIVERED, 0)


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def _share(part: int, whole: int) -> str | None:
    """In percent, never rounded up to 100: `99.9 %` of many is not all."""
    percent = _percent(part, whole)
    return None if percent is None else _format_percent(percent)


def _format_percent(percent: float) -> str:
    rounded = min(percent, 99.9) if percent < 100 else 100  # noqa: PLR2004 - all of them
    return f"{rounded:.1f}".removesuffix(".0") + " %"


def _format_count(count: float) -> str:
    return f"{round(count):,}"
