"""Exports spans and metrics with OpenTelemetry's SDK, in its own threads. The SDK reads the other `OTEL_` variables itself.

The providers are not made global: libraries that look for a global one start no spans beside those of the service.
"""

import logging
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from ringback import __version__
from ringback.telemetry.opentelemetry_tracer import OpenTelemetryTracer

log = logging.getLogger(__name__)

LAST_EXPORT_SECONDS: Final = 5.0
"""For the last export. A collector that is away must not delay the restart of the service."""
SERVICE_NAME: Final = "ringback"


@contextmanager
def open_exporting_tracer(variables: Mapping[str, str], *, node: str) -> Generator[OpenTelemetryTracer]:
    """A tracer that exports to the collector of the variables; the end of the context exports what is left."""
    resource = make_resource(node=node)
    tracer_provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if _is_exported(variables, "TRACES"):
        tracer_provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    readers = [PeriodicExportingMetricReader(OTLPMetricExporter())] if _is_exported(variables, "METRICS") else []
    meter_provider = MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)
    log.info("traces.exported", extra={"traces": _is_exported(variables, "TRACES"), "metrics": bool(readers)})
    try:
        yield OpenTelemetryTracer(tracer_provider=tracer_provider, meter_provider=meter_provider)
    finally:
        _shut_down(tracer_provider, meter_provider)


def make_resource(*, node: str) -> Resource:
    """What the exports say about this process. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` count first."""
    own = Resource.create({"service.name": SERVICE_NAME, "service.version": __version__, "service.instance.id": node})
    return own.merge(OTELResourceDetector().detect())


def _is_exported(variables: Mapping[str, str], signal: str) -> bool:
    return variables.get(f"OTEL_{signal}_EXPORTER", "").strip().lower() != "none"


def _shut_down(tracer_provider: TracerProvider, meter_provider: MeterProvider) -> None:
    """Export what is left, for a limited time: the exporter repeats failed requests for longer."""

    def export_rest() -> None:
        tracer_provider.shutdown()
        meter_provider.shutdown()

    thread = threading.Thread(target=export_rest, name="last-export", daemon=True)
    thread.start()
    thread.join(LAST_EXPORT_SECONDS)
    if thread.is_alive():
        log.warning("traces.not_exported", extra={"after_seconds": LAST_EXPORT_SECONDS})
