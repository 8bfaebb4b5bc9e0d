"""Metrics in Prometheus' text format, read from the store and the workers at each request.

Requests and deliveries update no counters, so the figures are correct after a restart, and cost nothing between scrapes.
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
# HELP ringback_calls Stored calls, by status.
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
async def read_metrics(request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """Metrics of the service for Prometheus. They cover all principals, so the key needs the scope `admin`."""
    current = await services.insights.get_status(caller)
    registry = CollectorRegistry()
    config = get_config(request)
    registry.register(
        _MetricsCollector(
            current, failing_workers=len(config.failing_workers()), failing_endpoints=len(config.failing_endpoints())
        )
    )
    return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


class _MetricsCollector(Collector):
    def __init__(self, status: ServiceStatus, *, failing_workers: int, failing_endpoints: int) -> None:
        self._status = status
        self._failing_workers = failing_workers
        self._failing_endpoints = failing_endpoints

    def collect(self) -> Iterator[Metric]:
        current = self._status
        yield InfoMetricFamily("ringback_build", "The version that runs.", value={"version": __version__})
        calls = GaugeMetricFamily("ringback_calls", "Stored calls, by status.", labels=["status"])
        for status, count in current.totals.calls.items():
            calls.add_metric([status], count)
        yield calls
        deliveries = GaugeMetricFamily("ringback_open_deliveries", "Deliveries that have not ended.", labels=["state"])
        for state, count in current.totals.open_deliveries.items():
            deliveries.add_metric([state], count)
        yield deliveries
        yield GaugeMetricFamily(
            "ringback_oldest_due_delivery_age_seconds",
            "How long the oldest due delivery is overdue.",
            value=current.oldest_due_age_seconds,
        )
        yield CounterMetricFamily(
            "ringback_events", "Events written to the log, including deleted ones.", value=current.totals.events
        )
        yield GaugeMetricFamily("ringback_open_streams", "Event streams that are open.", value=current.open_streams)
        yield GaugeMetricFamily(
            "ringback_failing_workers", "Background workers that failed and are being restarted.", self._failing_workers
        )
        yield GaugeMetricFamily(
            "ringback_failing_endpoints", "MCP endpoints that failed and are being restarted.", self._failing_endpoints
        )
        yield from _upstream_metrics(current.upstreams)


def _upstream_metrics(upstreams: Sequence[UpstreamInfo]) -> Iterator[Metric]:
    states = GaugeMetricFamily(
        "ringback_upstream_state", "1 for the current state of the upstream.", labels=["upstream", "state"]
    )
    in_flight = GaugeMetricFamily(
        "ringback_upstream_calls_in_flight", "Calls that run at the upstream.", labels=["upstream"]
    )
    faults = CounterMetricFamily(
        "ringback_upstream_faults", "Protocol faults of upstreams, by kind.", labels=["upstream", "fault"]
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
