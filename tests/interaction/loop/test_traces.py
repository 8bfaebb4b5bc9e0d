"""Traces of whole calls: spans, their parents and their links, from the request that starts a call to its resume."""

import json
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode
from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser

from ringback.bootstrap import Environment
from ringback.domain.principal import DEFAULT_SCOPES
from ringback.domain.principal import Scope as KeyScope
from ringback.log_context import ContextFilter
from ringback.runner.run_spans import trace_run
from tests.support.application import PUBLIC_URL, SECRET, running_application
from tests.support.clock import OffsetClock
from tests.support.engine import wait_until
from tests.support.examples import CALL
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, ModernClient, legacy_session
from tests.support.traces import RecordedTraces, is_child, linked_to
from tests.support.upstreams import ControlledUpstream, Message, Receive, Scope, Send, make_http_config, serving

CLIENT_TRACE: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
CLIENT_CONTEXT: Final = {"traceparent": f"00-{CLIENT_TRACE}-00f067aa0ba902b7-01", "tracestate": "rojo=1"}
RUN: Final = "execute_tool echo"
SEND: Final = "send webhooks/{webhook_id}"
PAYLOAD: Final = "the-payload-of-the-client"


@dataclass(slots=True)
class TracedReceiver:
    """A receiver that keeps headers and bodies, and first refuses as often as `refusals` says."""

    refusals: int = 0
    headers: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    bodies: list[Any] = field(default_factory=list[Any])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        while True:
            message: Message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self.headers.append({name.decode(): value.decode() for name, value in scope["headers"]})
        self.bodies.append(json.loads(body))
        status = 503 if len(self.bodies) <= self.refusals else 204
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@dataclass(slots=True)
class Stage:
    traces: RecordedTraces
    upstream: ControlledUpstream
    upstream_headers: list[dict[str, str]]
    receiver: TracedReceiver
    receiver_url: str
    upstream_port: int
    http: httpx.AsyncClient

    @property
    def key(self) -> str:
        return self.http.headers["authorization"].removeprefix("Bearer ")

    async def start_call(self, **body: Any) -> Any:
        request = {"upstream": "stage", "tool": "echo", "arguments": {"text": PAYLOAD}}
        callback = {"url": f"{self.receiver_url}/{PAYLOAD}?token={PAYLOAD}", "secret": SECRET}
        response = await self.http.post(
            "/v1/calls", json={**request, "callback": callback, **body}, headers=CLIENT_CONTEXT
        )
        return response.json()["call"]


@asynccontextmanager
async def traced_service(
    folder: Path, *, refusals: int = 0, strict: bool = False, port: int = 0, clock: OffsetClock | None = None
) -> AsyncGenerator[Stage]:
    """A service with the upstream `stage`; with `strict`, also `strict`, which is the same server and gets no `traceparent`."""
    traces, upstream, receiver = RecordedTraces(), ControlledUpstream(), TracedReceiver(refusals)
    seen: list[dict[str, str]] = []
    served = upstream.app()

    async def observe(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append({name.decode(): value.decode() for name, value in scope.get("headers", [])})
        await served(scope, receive, send)

    async with serving(observe, port=port) as upstream_server, serving(receiver) as receiver_server:
        config = make_http_config(upstream_server.url)
        configs = [config, replace(config, name="strict", forwarded_meta_keys=("tracestate",))][: 1 + strict]
        environment = Environment(tracer=traces.tracer, clock=clock or OffsetClock())
        async with running_application(folder, *configs, environment=environment) as ringback:
            _, key = await ringback.app.services.api_keys.create_key(
                "alice", name="t", scopes=DEFAULT_SCOPES | {KeyScope.METRICS}, upstreams=None
            )
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(ringback.app.api),
                base_url=PUBLIC_URL,
                headers={"Authorization": f"Bearer {key}"},
            ) as http:
                yield Stage(traces, upstream, seen, receiver, receiver_server.origin, upstream_server.port, http)


def parse_openmetrics(text: str) -> Sequence[Metric]:
    return list(parser.text_string_to_metric_families(text))  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


async def test_a_call_over_rest_is_traced_from_its_start_to_its_resume(tmp_path: Path) -> None:
    async with traced_service(tmp_path, refusals=1) as stage:
        traces = stage.traces
        call = await stage.start_call()
        await traces.wait_for_span(SEND)
        (delivery,) = (await stage.http.get("/v1/deliveries", params={"call_id": call["id"]})).json()["deliveries"]
        await stage.http.post(f"/v1/deliveries/{delivery['id']}/redeliver")
        await traces.wait_for_span(SEND, count=2)
        token = stage.receiver.bodies[-1]["data"]["resume_token"]
        context = {name: stage.receiver.headers[-1][name] for name in ("traceparent",)}
        await stage.http.post("/v1/resume", json={"resume_token": token}, headers=context)

        (started,), (run,) = traces.named("POST /v1/calls"), traces.named(RUN)
        (requested,), (first, second) = traces.named("tools/call echo"), traces.named(SEND)
        (resumed,) = traces.named("POST /v1/resume")
        print(traces.draw())  # noqa: T201 - the tree for people who read the test with -s

        assert started.parent is not None
        assert f"{started.parent.trace_id:032x}" == CLIENT_TRACE
        assert (run.parent, first.parent, second.parent) == (None, None, None)
        assert all(linked_to(span, started) for span in (run, first, second, resumed))
        assert is_child(requested, run)
        assert is_child(resumed, second)
        assert [span.kind for span in (started, run, requested, first, resumed)] == [
            *(SpanKind.SERVER, SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.PRODUCER, SpanKind.SERVER)
        ]
        assert [dict(span.attributes or {}).get("error.type") for span in (first, second)] == ["http_5xx", None]
        about_call = (started, run, first, second, resumed)
        assert {str(dict(span.attributes or {})["ringback.call.id"]) for span in about_call} == {call["id"]}
        assert started.links == ()
        assert PAYLOAD not in "".join(span.to_json() for span in traces.spans)


async def test_a_call_over_mcp_is_traced_in_both_eras(tmp_path: Path) -> None:
    async with traced_service(tmp_path) as stage:
        traces, modern = stage.traces, ModernClient(stage.http, "/mcp/stage", stage.key)
        await modern.request(
            "tools/call", {"name": "fail", "arguments": {}, "_meta": CLIENT_CONTEXT}, headers={"traceparent": "odd"}
        )
        async with legacy_session(stage.http, "/mcp/stage", key=stage.key) as session:
            await session.request("tools/call", {"name": "echo", "arguments": {"text": PAYLOAD}})
        await traces.wait_for_span(RUN)
        print(traces.draw())  # noqa: T201

        (failed, requested), (run,) = traces.named("tools/call fail"), traces.named("execute_tool fail")
        posted = traces.named("POST /mcp/{upstream}")[0]
        assert failed.parent is not None
        assert f"{failed.parent.trace_id:032x}" == CLIENT_TRACE
        assert linked_to(failed, posted)
        assert linked_to(run, failed)
        assert dict(run.attributes or {})["ringback.call.runs"] == 1
        assert is_child(requested, run)
        for span in (failed, requested, run):
            assert dict(span.attributes or {})["error.type"] == "tool_error"
            assert span.status.status_code is StatusCode.ERROR
        legacy, requested = traces.named("tools/call echo")
        attributes = dict(legacy.attributes or {})
        assert is_child(legacy, traces.named("POST /mcp/{upstream}")[-1])
        assert attributes["gen_ai.operation.name"] == "execute_tool"
        assert attributes["mcp.protocol.version"] == "2025-11-25"
        assert attributes["mcp.session.id"] == session.headers["mcp-session-id"]
        assert PAYLOAD not in "".join(span.to_json() for span in traces.spans)


async def test_names_that_clients_invent_make_no_series_of_metrics(tmp_path: Path) -> None:
    async with traced_service(tmp_path) as stage:
        modern = ModernClient(stage.http, "/mcp/stage", stage.key)
        invented: Sequence[Json] = ({"name": "invented-1", "arguments": {}}, {"name": "x" * 5_000, "arguments": {}}, {})
        for params in invented:
            with pytest.raises(JsonRpcErrorResponse):
                await modern.request("tools/call" if params else "invented/method", params)
        await stage.http.request("INVENTED", "/v1/invented")
        await stage.http.get("/v1/invented")

        labels = [dict(point.attributes) for point in stage.traces.list_points("mcp.server.operation.duration")]
        assert {each["mcp.method.name"] for each in labels} == {"tools/call", "_OTHER"}
        assert not any("gen_ai.tool.name" in each for each in labels)
        requests = [dict(point.attributes) for point in stage.traces.list_points("http.server.request.duration")]
        assert {each["http.request.method"] for each in requests} == {"POST", "GET", "_OTHER"}
        assert {each.get("http.route") for each in requests} == {"/mcp/{upstream}", None}
        assert max(len(span.name) for span in stage.traces.spans) < 200


async def test_an_upstream_gets_the_context_of_its_request_if_its_meta_policy_allows_it(tmp_path: Path) -> None:
    async with traced_service(tmp_path, strict=True) as stage:
        for count, upstream in enumerate(("stage", "strict"), start=1):
            await stage.start_call(upstream=upstream)
            await stage.traces.wait_for_span(RUN, count=count)

        sent, withheld = stage.upstream.calls
        (requested, _) = stage.traces.named("tools/call echo")
        assert requested.context is not None
        expected = f"00-{requested.context.trace_id:032x}-{requested.context.span_id:016x}-01"
        assert dict(sent.meta or {})["traceparent"] == expected
        assert "traceparent" not in dict(withheld.meta or {})
        assert [headers.get("traceparent") for headers in stage.upstream_headers if "traceparent" in headers] == [
            expected
        ]


async def test_a_run_in_another_process_is_linked_to_the_request_that_started_the_call(tmp_path: Path) -> None:
    async with traced_service(tmp_path) as stage:
        later = (OffsetClock().now() + timedelta(hours=1)).isoformat()
        call = await stage.start_call(not_before=later)
        (started,) = stage.traces.named("POST /v1/calls")
        port = stage.upstream_port

    clock = OffsetClock()
    clock.advance(3_700.0)
    async with traced_service(tmp_path, clock=clock, port=port) as stage:
        run, attempt = await stage.traces.wait_for_span(RUN), await stage.traces.wait_for_span(SEND)

    assert dict(run.attributes or {})["gen_ai.tool.call.id"] == call["id"]
    assert linked_to(run, started)
    assert linked_to(attempt, started)


async def test_openmetrics_shows_the_trace_of_a_call_of_each_bucket(tmp_path: Path) -> None:
    async with traced_service(tmp_path) as stage:
        await stage.start_call()
        await stage.traces.wait_for_span(SEND)

        async def read_exemplars() -> dict[str, str]:
            response = await stage.http.get(
                "/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0"}
            )
            assert response.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
            samples = [each for family in parse_openmetrics(response.text) for each in family.samples]
            return {each.name: each.exemplar.labels["trace_id"] for each in samples if each.exemplar is not None}

        async def is_measured() -> bool:
            return len(await read_exemplars()) == 2

        await wait_until(is_measured)
        assert await read_exemplars() == {
            "ringback_call_seconds_bucket": CLIENT_TRACE,
            "ringback_delivery_seconds_bucket": CLIENT_TRACE,
        }


async def test_log_lines_name_the_trace_of_their_run_and_of_a_request_without_a_context(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="ringback")
    caplog.handler.addFilter(ContextFilter())
    async with traced_service(tmp_path) as stage:
        await stage.http.get("/v1/calls")
        await stage.start_call()
        listed = await stage.traces.wait_for_span("GET /v1/calls")
        with trace_run(stage.traces.tracer, replace(CALL, tool="probe")):
            logging.getLogger("ringback.runner").info("probe.logged")
        (run,) = stage.traces.named("execute_tool probe")

    lines = {(record.getMessage(), getattr(record, "trace_id", None)) for record in caplog.records}
    assert ("request.finished", trace_id(listed)) in lines
    assert ("call.started", CLIENT_TRACE) in lines
    assert ("probe.logged", trace_id(run)) in lines


def trace_id(span: ReadableSpan) -> str:
    assert span.context is not None
    return f"{span.context.trace_id:032x}"
