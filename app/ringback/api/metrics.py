"""Metrics in Prometheus' text format: what is there now, read from the store and the workers when it is asked for.

Nothing is counted here on the way. So the figures are true after a restart, and cost nothing while nobody asks.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from ringback import __version__
from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep, get_config
from ringback.api.problems import AUTHENTICATED_ERRORS, problem_responses
from ringback.domain.upstreams import UpstreamInfo
from ringback.services.insights import ServiceStatus

router = APIRouter(tags=["operations"], route_class=AuthenticatedRoute)

UPSTREAM_STATES: Final = ("idle", "connecting", "ready", "unresponsive", "failing")
_EXAMPLE: Final = """\
# HELP ringback_calls Calls that are kept, by status.
# TYPE ringback_calls gauge
ringback_calls{status="working"} 3.0
"""


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus' text format.",
            "content": {"text/plain": {"schema": {"type": "string"}, "example": _EXAMPLE}},
        },
        **problem_responses(*AUTHENTICATED_ERRORS),
    },
)
async def read_metrics(request: Request, behind: ServicesDep, caller: CallerDep) -> Response:
    """How the service is doing, for Prometheus. It tells of all principals: the key needs the scope `admin`."""
    vitals = await behind.insights.get_status(caller)
    registry = CollectorRegistry()
    config = get_config(request)
    registry.register(
        _MetricsCollector(
            vitals, failing_workers=len(config.failing_workers()), failing_endpoints=len(config.failing_endpoints())
        )
    )
    return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


class _MetricsCollector(Collector):
    def __init__(self, vitals: ServiceStatus, *, failing_workers: int, failing_endpoints: int) -> None:
        self._vitals = vitals
        self._failing_workers = failing_workers
        self._failing_endpoints = failing_endpoints

    def collect(self) -> Iterator[Metric]:
        vitals = self._vitals
        yield InfoMetricFamily("ringback_build", "The version that runs.", value={"version": __version__})
        calls = GaugeMetricFamily("ringback_calls", "Calls that are kept, by status.", labels=["status"])
        for status, count in vitals.totals.calls.items():
            calls.add_metric([status], count)
        yield calls
        deliveries = GaugeMetricFamily("ringback_open_deliveries", "Deliveries that have not ended.", labels=["state"])
        for state, count in vitals.totals.open_deliveries.items():
            deliveries.add_metric([state], count)
        yield deliveries
        yield GaugeMetricFamily(
            "ringback_oldest_due_delivery_age_seconds",
            "How long the delivery that has waited longest is overdue.",
            value=vitals.oldest_due_age_seconds,
        )
        yield CounterMetricFamily("ringback_events", "Events ever written to the log.", value=vitals.totals.events)
        yield GaugeMetricFamily("ringback_open_streams", "Event streams that are open.", value=vitals.open_streams)
        yield GaugeMetricFamily(
            "ringback_failing_workers", "Background workers that failed and are being restarted.", self._failing_workers
        )
        yield GaugeMetricFamily(
            "ringback_failing_endpoints", "MCP endpoints that failed and are being restarted.", self._failing_endpoints
        )
        yield from _upstream_metrics(vitals.upstreams)


def _upstream_metrics(upstreams: Sequence[UpstreamInfo]) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        "ringback_upstream_state", "1 for the state that the upstream is in.", labels=["upstream", "state"]
    )
    in_flight = GaugeMetricFamily(
        "ringback_upstream_calls_in_flight", "Calls that the upstream is at work on.", labels=["upstream"]
    )
    faults = CounterMetricFamily(
        "ringback_upstream_faults", "What upstreams sent that they should not, by kind.", labels=["upstream", "fault"]
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
