"""Exports spans and metrics with OpenTelemetry's SDK, in its own threads. The SDK reads the other `OTEL_` variables itself.

The providers are not made global: libraries that look for a global one start no spans beside those of the service.
"""

import logging
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

from ringback import __version__
from ringback.settings import SettingsError
from ringback.telemetry.opentelemetry_tracer import OpenTelemetryTracer

log = logging.getLogger(__name__)

LAST_EXPORT_SECONDS: Final = 5.0
"""For the last export. A collector that is away must not delay the restart of the service."""
SERVICE_NAME: Final = "ringback"
FAILURE_LOG_SECONDS: Final = 300.0
"""Between two log lines about exports that fail."""
_SDK_LOGGER: Final = "opentelemetry"
"""It logs each failed request; `ExportFailures` says so once in a while."""


class ExportFailures:
    """Logs that exports fail, at most once in `FAILURE_LOG_SECONDS`. The exporters call it in their threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._logged_at: float | None = None

    def note_failure(self, signal: str) -> None:
        with self._lock:
            self._count += 1
            now = monotonic()
            if self._logged_at is not None and now - self._logged_at < FAILURE_LOG_SECONDS:
                return
            self._logged_at, count, self._count = now, self._count, 0
        log.warning("traces.export_failed", extra={"signal": signal, "exports": count})


class ReportingSpanExporter(OTLPSpanExporter):
    def __init__(self, failures: ExportFailures) -> None:
        super().__init__()
        self._failures = failures

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        if result is not SpanExportResult.SUCCESS:
            self._failures.note_failure("traces")
        return result


class ReportingMetricExporter(OTLPMetricExporter):
    def __init__(self, failures: ExportFailures) -> None:
        super().__init__()
        self._failures = failures

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        result = super().export(metrics_data, timeout_millis, **kwargs)  # pyright: ignore[reportUnknownMemberType] - `kwargs`
        if result is not MetricExportResult.SUCCESS:
            self._failures.note_failure("metrics")
        return result


@contextmanager
def open_exporting_tracer(*, node: str, traces: bool, metrics: bool) -> Generator[OpenTelemetryTracer]:
    """A tracer that exports traces, metrics or both; the end of the context exports what is left.

    Raises `SettingsError` for a variable whose value the SDK refuses.
    """
    logging.getLogger(_SDK_LOGGER).setLevel(logging.CRITICAL)
    try:
        tracer_provider, meter_provider = _make_providers(make_resource(node=node), traces=traces, metrics=metrics)
    except ValueError as problem:
        raise SettingsError(f"A variable of OpenTelemetry (OTEL_…) has an invalid value: {problem}") from None
    log.info("traces.exported", extra={"traces": traces, "metrics": metrics})
    try:
        yield OpenTelemetryTracer(tracer_provider=tracer_provider, meter_provider=meter_provider)
    finally:
        _shut_down(tracer_provider, meter_provider)


def _make_providers(resource: Resource, *, traces: bool, metrics: bool) -> tuple[TracerProvider, MeterProvider]:
    failures = ExportFailures()
    tracer_provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    if traces:
        tracer_provider.add_span_processor(BatchSpanProcessor(ReportingSpanExporter(failures)))
    readers = [PeriodicExportingMetricReader(ReportingMetricExporter(failures))] if metrics else []
    return tracer_provider, MeterProvider(metric_readers=readers, resource=resource, shutdown_on_exit=False)


def make_resource(*, node: str) -> Resource:
    """What the exports say about this process. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` count first."""
    own = Resource.create({"service.name": SERVICE_NAME, "service.version": __version__, "service.instance.id": node})
    return own.merge(OTELResourceDetector().detect())


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
