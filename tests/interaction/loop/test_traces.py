"""Traces of whole calls: spans, their parents and their links, from the request that starts a call to its resume."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from opentelemetry.trace import SpanKind

from ringback.bootstrap import Environment
from ringback.domain.principal import DEFAULT_SCOPES
from tests.support.application import PUBLIC_URL, SECRET, RunningApplication, running_application
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
    ringback: RunningApplication
    http: httpx.AsyncClient

    async def start_call(self, tool: str = "echo", **body: Any) -> Any:
        request = {"upstream": "stage", "tool": tool, "arguments": {"text": PAYLOAD}}
        callback = {"url": f"{self.receiver_url}/{PAYLOAD}?token={PAYLOAD}", "secret": SECRET}
        response = await self.http.post(
            "/v1/calls", json={**request, "callback": callback, **body}, headers=CLIENT_CONTEXT
        )
        return response.json()["call"]


@asynccontextmanager
async def traced_service(folder: Path, *, refusals: int = 0, pass_meta: Any = None) -> AsyncGenerator[Stage]:
    traces, upstream, receiver = RecordedTraces(), ControlledUpstream(), TracedReceiver(refusals)
    seen: list[dict[str, str]] = []
    served = upstream.app()

    async def observe(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append({name.decode(): value.decode() for name, value in scope.get("headers", [])})
        await served(scope, receive, send)

    async with serving(observe) as upstream_server, serving(receiver) as receiver_server:
        config = make_http_config(upstream_server.url)
        async with running_application(folder, config, environment=Environment(tracer=traces.tracer)) as ringback:
            _, key = await ringback.app.services.api_keys.create_key(
                "alice", name="t", scopes=DEFAULT_SCOPES, upstreams=None
            )
            async with httpx.AsyncClient(
                transport=httpx.ASGITransport(ringback.app.api),
                base_url=PUBLIC_URL,
                headers={"Authorization": f"Bearer {key}"},
            ) as http:
                yield Stage(traces, upstream, seen, receiver, receiver_server.origin, ringback, http)


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
        assert {str(dict(span.attributes or {})["ringback.call.id"]) for span in (run, first, second, resumed)} == {
            call["id"]
        }
        assert PAYLOAD not in "".join(span.to_json() for span in traces.spans)
