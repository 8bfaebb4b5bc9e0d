"""A status of the service with one of everything, and the metrics that it gives. Run as a program, it prints them."""

import sys
from collections.abc import Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from ringback.api.metric_families import build_families
from ringback.domain.call import CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.delivery import OPEN_STATES
from ringback.domain.upstream_rows import UpstreamIntake
from ringback.domain.upstreams import UpstreamInfo
from ringback.domain.usage import StoreTotals
from ringback.domain.webhook import FAILING_STATES
from ringback.measurements import Measurements
from ringback.services.insights.insights import ServiceStatus


def make_status() -> ServiceStatus:
    measured = Measurements()
    measured.ended_calls["git", CallOutcome.RESULT] = 1
    return ServiceStatus(
        totals=StoreTotals(
            calls=dict.fromkeys(CallStatus, 0),
            open_deliveries=dict.fromkeys(sorted(OPEN_STATES), 0),
            failing_webhooks=dict.fromkeys(FAILING_STATES, 0),
            subscriptions=0,
            events=0,
        ),
        oldest_due_age_seconds=0.0,
        oldest_queued_age_seconds=0.0,
        queued_calls={},
        measurements=measured,
        upstreams=[UpstreamInfo(name="git", transport="stdio", state="ready", faults={"not_json": 1})],
        intakes={"git": UpstreamIntake.PAUSED},
        open_streams=0,
    )


def build_all_families() -> Sequence[Metric]:
    return list(build_families(make_status(), failing_workers=0, failing_endpoints=0))


class _AllFamilies(Collector):
    def collect(self) -> Sequence[Metric]:
        return build_all_families()


def render_exposition() -> str:
    registry = CollectorRegistry()
    registry.register(_AllFamilies())
    return generate_latest(registry).decode()


if __name__ == "__main__":
    sys.stdout.write(render_exposition())
