"""The metrics of the service as families of Prometheus' client library.

    of the database   the same from every node: counts of rows, ages of queues
    of this node      counted by this process since its start, or the state of its upstreams and workers

Each help text says which. Names follow Prometheus' rules: base units, `_total` for counters, no unit but seconds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.samples import Exemplar as ExemplarSample

from ringback import __version__
from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.delivery import OPEN_STATES, DeliveryState
from ringback.domain.upstream_rows import UpstreamIntake
from ringback.domain.upstreams import UpstreamInfo
from ringback.domain.usage import TOTALS_COUNTED_MAX, StoreTotals
from ringback.measurements import Exemplar, Histogram, Measurements
from ringback.services.insights.insights import ServiceStatus

UPSTREAM_STATES: Final = ("idle", "connecting", "ready", "unresponsive", "failing")
_COUNTED_UP_TO: Final = f"Counted up to {TOTALS_COUNTED_MAX}."
"""For counts that end there: a scrape costs no more with a backlog of millions."""


def build_families(status: ServiceStatus, *, failing_workers: int, failing_endpoints: int) -> Iterator[Metric]:
    yield InfoMetricFamily("ringback_build", "The version that this node runs.", value={"version": __version__})
    yield from _database_families(status)
    yield from _attempt_families(status.measurements)
    yield from _call_families(status.measurements)
    yield _histogram(
        "ringback_store_write_seconds",
        "From a unit of work to its commit in the database, on this node.",
        status.measurements.write_seconds,
    )
    yield GaugeMetricFamily(
        "ringback_open_streams", "Event streams that clients have open on this node.", status.open_streams
    )
    yield GaugeMetricFamily(
        "ringback_failing_workers",
        "Background workers of this node that failed and are being restarted.",
        failing_workers,
    )
    yield GaugeMetricFamily(
        "ringback_failing_endpoints",
        "MCP endpoints of this node that failed and are being restarted.",
        failing_endpoints,
    )
    yield from _upstream_families(status.upstreams)
    yield _intake_family(status.upstreams, status.intakes)


def _database_families(status: ServiceStatus) -> Iterator[Metric]:
    totals: StoreTotals = status.totals
    yield _gauge("ringback_calls", "Calls stored in the database, by status.", "status", totals.calls.items())
    yield _gauge(
        "ringback_open_deliveries",
        f"Deliveries in the database that have not ended, by state. {_COUNTED_UP_TO}",
        "state",
        totals.open_deliveries.items(),
    )
    yield _gauge(
        "ringback_failing_webhooks",
        "Webhooks in the database whose last attempt or challenge failed, by state, without disabled ones. "
        f"{_COUNTED_UP_TO}",
        "state",
        totals.failing_webhooks.items(),
    )
    yield GaugeMetricFamily(
        "ringback_subscriptions", "Live subscriptions of MCP clients in the database.", totals.subscriptions
    )
    yield GaugeMetricFamily(
        "ringback_oldest_due_delivery_age_seconds",
        "How long the oldest due delivery in the database is overdue.",
        status.oldest_due_age_seconds,
    )
    yield GaugeMetricFamily(
        "ringback_oldest_queued_call_age_seconds",
        "How long the call that waits longest in the database has waited for a runner.",
        status.oldest_queued_age_seconds,
    )
    yield _gauge(
        "ringback_queued_calls",
        f"Calls in the database that wait for a runner, by upstream. Of each, counted up to {TOTALS_COUNTED_MAX}.",
        "upstream",
        sorted({**{each.name: 0 for each in status.upstreams}, **status.queued_calls}.items()),
    )
    yield CounterMetricFamily(
        "ringback_events", "Events written to the logs in the database, including deleted ones.", totals.events
    )


def _attempt_families(measured: Measurements) -> Iterator[Metric]:
    attempts = CounterMetricFamily(
        "ringback_attempts", "Attempts to deliver a callback from this node, by category.", labels=["category"]
    )
    for category in AttemptCategory:
        attempts.add_metric([category], measured.attempts[category])
    yield attempts
    ended = CounterMetricFamily(
        "ringback_ended_deliveries", "Deliveries that this node ended, by state.", labels=["state"]
    )
    for state in (each for each in DeliveryState if each not in OPEN_STATES):
        ended.add_metric([state], measured.ended_deliveries[state])
    yield ended
    yield _histogram(
        "ringback_delivery_seconds",
        "From an event to the 2xx response of its receiver, for deliveries that this node made; replays are not counted.",
        measured.delivery_seconds,
    )


def _call_families(measured: Measurements) -> Iterator[Metric]:
    ended = CounterMetricFamily(
        "ringback_ended_calls", "Calls that this node ended, by upstream and outcome.", labels=["upstream", "outcome"]
    )
    for upstream in sorted({upstream for upstream, _ in measured.ended_calls}):
        for outcome in CallOutcome:
            ended.add_metric([upstream, outcome], measured.ended_calls[upstream, outcome])
    yield ended
    yield _histogram(
        "ringback_call_seconds",
        "From the creation of a call to its end, the time in the queue included, for calls that this node ended.",
        measured.call_seconds,
    )


def _upstream_families(upstreams: Sequence[UpstreamInfo]) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        "ringback_upstream_state",
        "1 for the current state of this node's connection to the upstream.",
        labels=["upstream", "state"],
    )
    in_flight = GaugeMetricFamily(
        "ringback_upstream_calls_in_flight", "Calls of this node that run at the upstream.", labels=["upstream"]
    )
    faults = CounterMetricFamily(
        "ringback_upstream_faults",
        "Protocol faults of upstreams that this node has seen, by kind.",
        labels=["upstream", "fault"],
    )
    for upstream in upstreams:
        for fault, count in upstream.faults.items():
            faults.add_metric([upstream.name, fault], count)
        for state in UPSTREAM_STATES:
            states.add_metric([upstream.name, state], float(state == upstream.state))
        in_flight.add_metric([upstream.name], upstream.calls_in_flight)
    yield faults
    yield states
    yield in_flight


def _intake_family(upstreams: Sequence[UpstreamInfo], intakes: Mapping[str, UpstreamIntake]) -> Metric:
    family = GaugeMetricFamily(
        "ringback_upstream_intake",
        "1 for the calls that the upstream takes, as the database says. An operator pauses, drains and resumes it.",
        labels=["upstream", "intake"],
    )
    for name in sorted({each.name for each in upstreams} | intakes.keys()):
        for intake in UpstreamIntake:
            family.add_metric([name, intake], float(intake is intakes.get(name, UpstreamIntake.OPEN)))
    return family


def _gauge(name: str, help_text: str, label: str, counts: Iterable[tuple[str, int]]) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=[label])
    for value, count in counts:
        family.add_metric([value], count)
    return family


def _histogram(name: str, help_text: str, histogram: Histogram) -> Metric:
    bounds = [*(str(bound) for bound in histogram.bounds), "+Inf"]
    buckets = [
        (bound, float(count)) if exemplar is None else (bound, float(count), _to_sample(exemplar))
        for bound, count, exemplar in zip(bounds, histogram.cumulative_counts(), histogram.exemplars, strict=True)
    ]
    return HistogramMetricFamily(name, help_text, buckets=buckets, sum_value=histogram.sum_seconds)


def _to_sample(exemplar: Exemplar) -> ExemplarSample:
    labels = {"trace_id": exemplar.trace_id, "span_id": exemplar.span_id}
    return ExemplarSample(labels, exemplar.seconds, exemplar.observed_at.timestamp())
