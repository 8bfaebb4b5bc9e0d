"""The spans and metrics of a service in this process, from OpenTelemetry's SDK in memory, and its traces as text.

traces = RecordedTraces()
async with running_with_upstream(folder, stage, environment=Environment(tracer=traces.tracer)) as (ringback, phone):
    ...
print(traces.draw())
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, format_span_id, format_trace_id

from ringback.telemetry.opentelemetry_tracer import OpenTelemetryTracer
from tests.support.engine import wait_until

DRAWN_ATTRIBUTES: Final = (
    *("http.response.status_code", "mcp.method.name", "mcp.protocol.version", "ringback.upstream"),
    *("ringback.call.outcome", "ringback.attempt.number", "ringback.attempt.category", "error.type"),
)


class RecordedTraces:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        tracer_provider = TracerProvider(shutdown_on_exit=False)
        tracer_provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        meter_provider = MeterProvider(metric_readers=[self._reader], shutdown_on_exit=False)
        self.tracer: Final = OpenTelemetryTracer(tracer_provider=tracer_provider, meter_provider=meter_provider)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """The ended spans, in the order of their starts."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> Sequence[ReadableSpan]:
        return [span for span in self.spans if span.name == name]

    async def wait_for_span(self, name: str, *, count: int = 1) -> ReadableSpan:
        """The last of `count` spans of this name."""

        async def has_ended() -> bool:
            return len(self.named(name)) >= count

        await wait_until(has_ended)
        return self.named(name)[count - 1]

    def list_points(self, metric: str) -> Sequence[Any]:
        """The data points of the metric."""
        data = self._reader.get_metrics_data()
        resources: Sequence[Any] = () if data is None else data.resource_metrics
        return [
            point
            for resource in resources
            for scope in resource.scope_metrics
            for each in scope.metrics
            if each.name == metric
            for point in each.data.data_points
        ]

    def draw(self) -> str:
        """Each trace as a tree, with the links of its root: `├ name  kind  attributes`."""
        numbers = {span.context.trace_id: 0 for span in self.spans if span.context is not None}
        numbers = {trace_id: number for number, trace_id in enumerate(numbers, start=1)}
        ids = {_key(span.context) for span in self.spans}
        roots = [span for span in self.spans if span.parent is None or _key(span.parent) not in ids]
        return "\n".join(line for root in roots for line in self._draw_span(root, 0, numbers))

    def _draw_span(self, span: ReadableSpan, depth: int, numbers: dict[int, int]) -> Iterator[str]:
        attributes: dict[str, Any] = dict(span.attributes or {})
        shown = "  ".join(f"{name}={attributes[name]}" for name in DRAWN_ATTRIBUTES if name in attributes)
        trace = f"trace {numbers[span.context.trace_id]}  " if span.context is not None and depth == 0 else ""
        yield f"{'   ' * depth}{trace}{span.name}  [{span.kind.name}]  {shown}".rstrip()
        for link in span.links:
            yield f"{'   ' * depth}   ↳ link to {self._name_of(link.context, numbers)}"
        for child in self.spans:
            if child.parent is not None and _key(child.parent) == _key(span.context):
                yield from self._draw_span(child, depth + 1, numbers)

    def _name_of(self, context: SpanContext, numbers: dict[int, int]) -> str:
        known = [span for span in self.spans if _key(span.context) == _key(context)]
        trace = numbers.get(context.trace_id, format_trace_id(context.trace_id))
        return f"trace {trace}: {known[0].name if known else format_span_id(context.span_id)}"


def _key(context: SpanContext | None) -> tuple[int, int] | None:
    return None if context is None else (context.trace_id, context.span_id)


def linked_to(span: ReadableSpan, other: ReadableSpan) -> bool:
    return _key(other.context) in {_key(link.context) for link in span.links}


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return _key(span.parent) == _key(parent.context)
