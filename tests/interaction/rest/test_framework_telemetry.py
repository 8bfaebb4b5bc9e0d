"""What the web framework would export by itself."""

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


async def test_the_framework_makes_no_span_in_a_process_with_a_tracer_provider(
    alice: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its span would have the query of the URL, in which there may be a token."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)

    response = await alice.get("/v1/calls", params={"correlation_id": "report-7"})

    assert response.status_code == 200
    assert [dict(span.attributes or {}) for span in exporter.get_finished_spans()] == []
