"""Metrics: counts of the database, read at each request, and what this node counted itself.

They are in Prometheus' text format, or in OpenMetrics for clients that accept it. OpenMetrics also has exemplars: for each
bucket of a duration the trace of one call, if the service makes traces.
"""

from collections.abc import Iterator, Sequence
from typing import Final, cast

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from ringback.api.authentication import AuthenticatedRoute, CallerDep
from ringback.api.context import ServicesDep, get_config
from ringback.api.metric_families import build_families
from ringback.api.problems import AUTHENTICATED_ERRORS, problem_responses

OPENMETRICS: Final = "application/openmetrics-text"


class ScrapeRoute(AuthenticatedRoute):
    """Prometheus sends the `params` of its job to every target, with which some exporters choose what they show."""

    ignores_parameters = True


router = APIRouter(tags=["operations"], route_class=ScrapeRoute)

_EXAMPLE: Final = """\
# HELP ringback_calls Calls stored in the database, by status.
# TYPE ringback_calls gauge
ringback_calls{status="working"} 3.0
"""


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus' text format; OpenMetrics if `Accept` has it.",
            "content": {
                "text/plain": {"schema": {"type": "string"}, "example": _EXAMPLE},
                OPENMETRICS: {"schema": {"type": "string"}, "example": f"{_EXAMPLE}# EOF\n"},
            },
        },
        **problem_responses(*AUTHENTICATED_ERRORS),
    },
)
async def read_metrics(request: Request, services: ServicesDep, caller: CallerDep) -> Response:
    """Metrics of the service for Prometheus. They cover all principals, so the key needs the scope `metrics`."""
    current = await services.insights.get_status(caller)
    registry = CollectorRegistry()
    config = get_config(request)
    families = build_families(
        current, failing_workers=len(config.failing_workers()), failing_endpoints=len(config.failing_endpoints())
    )
    registry.register(_MetricsCollector(list(families)))
    if _accepts_openmetrics(request):
        text = cast("bytes", openmetrics.generate_latest(registry))  # pyright: ignore[reportUnknownMemberType] - without types
        return Response(text, headers={"Content-Type": openmetrics.CONTENT_TYPE_LATEST})
    return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})


def _accepts_openmetrics(request: Request) -> bool:
    """Prometheus names it before its own format, with a weight; a client that accepts anything gets Prometheus' format."""
    accepted = request.headers.get("accept", "").split(",")
    return any(each.partition(";")[0].strip().lower() == OPENMETRICS for each in accepted)


class _MetricsCollector(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families
