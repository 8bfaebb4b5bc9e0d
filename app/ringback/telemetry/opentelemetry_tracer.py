"""The tracer over OpenTelemetry's API. Only `bootstrap.tracing` and tests import it.

Providers are handed in and not looked up globally, so that each service in a process has its own, and libraries that look for a
global provider (FastAPI, the MCP SDK) find none and start no spans of their own beside these.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from time import perf_counter
from typing import Final

from opentelemetry import metrics, trace
from opentelemetry.context import Context

from ringback import __version__
from ringback.telemetry.names import METRICS, Attribute, AttributeValue, Metric, SpanKind
from ringback.telemetry.spans import TraceContext

INSTRUMENTATION_SCOPE: Final = "ringback"
_KINDS: Final = {
    SpanKind.SERVER: trace.SpanKind.SERVER,
    SpanKind.CLIENT: trace.SpanKind.CLIENT,
    SpanKind.PRODUCER: trace.SpanKind.PRODUCER,
    SpanKind.INTERNAL: trace.SpanKind.INTERNAL,
}
_NO_CONTEXT: Final = Context()
"""Without it, the API would take the current span of its own context as the parent."""
Record = Callable[[float, dict[str, AttributeValue], Context], None]


class OpenTelemetryTracer:
    """Implements `telemetry.spans.Tracer`."""

    def __init__(self, *, tracer_provider: trace.TracerProvider, meter_provider: metrics.MeterProvider) -> None:
        self._tracer = tracer_provider.get_tracer(INSTRUMENTATION_SCOPE, __version__)
        meter = meter_provider.get_meter(INSTRUMENTATION_SCOPE, __version__)
        self.records: Final = {metric.name: _create_instrument(meter, metric) for metric in METRICS}

    def start_span(
        self,
        name: str,
        kind: SpanKind,
        attributes: Mapping[Attribute, AttributeValue],
        *,
        parent: TraceContext | None = None,
        links: Sequence[TraceContext] = (),
    ) -> "OpenTelemetrySpan":
        own_attributes = _clean_attributes(attributes)
        span = self._tracer.start_span(
            _clean(name),
            context=_NO_CONTEXT if parent is None else _to_context(trace.NonRecordingSpan(_to_span_context(parent))),
            kind=_KINDS[kind],
            attributes=own_attributes,
            links=[trace.Link(_to_span_context(link)) for link in links],
        )
        return OpenTelemetrySpan(self, span, own_attributes)


class OpenTelemetrySpan:
    """Implements `telemetry.spans.Span`. It keeps its attributes, because a span that is not sampled has none to read."""

    def __init__(self, tracer: OpenTelemetryTracer, span: trace.Span, attributes: dict[str, AttributeValue]) -> None:
        self.tracer: Final = tracer
        self._span = span
        self._attributes = attributes
        self._started_at = perf_counter()
        self.context: Final = _to_trace_context(span.get_span_context())

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def set_attributes(self, attributes: Mapping[Attribute, AttributeValue]) -> None:
        added = _clean_attributes(attributes)
        self._attributes |= added
        self._span.set_attributes(added)

    def add_link(self, context: TraceContext) -> None:
        self._span.add_link(_to_span_context(context))

    def set_error(self, error_type: str) -> None:
        self.set_attributes({Attribute.ERROR_TYPE: error_type})
        self._span.set_status(trace.StatusCode.ERROR)

    def end(self, *metrics: Metric, without: Collection[Attribute] = ()) -> None:
        seconds = perf_counter() - self._started_at
        self._span.end()
        for metric in metrics:
            attributes = {
                str(key): self._attributes[key]
                for key in metric.attributes
                if key in self._attributes and key not in without
            }
            self.tracer.records[metric.name](seconds, attributes, _to_context(self._span))


def _clean_attributes(attributes: Mapping[Attribute, AttributeValue]) -> dict[str, AttributeValue]:
    return {str(key): _clean(value) if isinstance(value, str) else value for key, value in attributes.items()}


def _clean(text: str) -> str:
    """The text without lone surrogates: one of them would make the exporter drop all spans of its batch."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _to_context(span: trace.Span) -> Context:
    return trace.set_span_in_context(span, _NO_CONTEXT)


def _create_instrument(meter: metrics.Meter, metric: Metric) -> Record:
    if not metric.bounds:
        counter = meter.create_counter(metric.name, metric.unit, metric.description)
        return lambda _, attributes, context: counter.add(1, attributes, context)
    return meter.create_histogram(
        metric.name, metric.unit, metric.description, explicit_bucket_boundaries_advisory=metric.bounds
    ).record


def _to_span_context(context: TraceContext) -> trace.SpanContext:
    return trace.SpanContext(
        trace_id=int(context.trace_id, 16),
        span_id=int(context.span_id, 16),
        is_remote=True,
        trace_flags=trace.TraceFlags(context.is_sampled),
        trace_state=trace.TraceState.from_header([context.tracestate]) if context.tracestate else None,
    )


def _to_trace_context(context: trace.SpanContext) -> TraceContext:
    trace_id, span_id = trace.format_trace_id(context.trace_id), trace.format_span_id(context.span_id)
    return TraceContext(
        traceparent=f"00-{trace_id}-{span_id}-{context.trace_flags:02x}", tracestate=context.trace_state.to_header()
    )
