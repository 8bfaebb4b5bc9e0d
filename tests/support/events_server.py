"""A small MCP server that offers Events, in memory, with its faults on request.

server = EventsServer()                       follows the specification
server = EventsServer("poll-has-more")        breaks the rule of the check with this id, and no other
async with serving_events(server) as url:     url is its endpoint

It shares no code with Ringback's own server side: the checks of `ringback check-server` are tested against it.
"""

import itertools
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final, cast

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.support.events_deliveries import EventsWebhooks
from tests.support.events_faults import FRAMES, RESULTS
from tests.support.events_log import TYPES, EventsLog, RpcError, check_arguments, find_type, list_types
from tests.support.upstreams import serving

Json = dict[str, Any]

EXTENSION: Final = "io.modelcontextprotocol/events"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
HEARTBEAT_SECONDS: Final = 0.05
SLOW_HEARTBEAT_SECONDS: Final = 1.0
STREAMS_CAP: Final = 2
"""Of the server whose fault is a cap."""


@dataclass
class EventsServer:
    fault: str = ""
    """The id of the check whose rule is broken. `subscribe-refuses-loopback`, `callbacks-allowed` and
    `no-events` are other servers, not faults."""
    streams: int = 0
    closed: list[int | str] = field(default_factory=list[int | str])
    """The request ids of streams that have ended."""
    sessions: "itertools.count[int]" = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.log = EventsLog(self.fault)
        self.webhooks = EventsWebhooks(self.log, self.fault)

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/mcp", self.respond, methods=["POST", "DELETE"])])

    async def respond(self, request: Request) -> Response:
        if request.method == "DELETE":
            return Response(status_code=200)
        message: Json = json.loads(await request.body())
        if "id" not in message:
            return Response(status_code=202)
        principal = request.headers.get("authorization", "")
        try:
            if message["method"] == "events/stream":
                return self._open_stream(message)
            result = await self._find_result(principal, message["method"], cast("Json", message.get("params", {})))
        except RpcError as error:
            return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error.to_json(self.fault)})
        headers = {"mcp-session-id": f"s{next(self.sessions)}"} if message["method"] == "initialize" else {}
        rewrite = RESULTS.get((message["method"], self.fault))
        body = {"jsonrpc": "2.0", "id": message["id"], "result": rewrite(result) if rewrite else result}
        return JSONResponse(body, headers=headers)

    async def _find_result(self, principal: str, method: str, params: Json) -> Json:
        match method:
            case "server/discover" | "initialize":
                return self._handshake(method)
            case "events/list":
                if self.fault in {"capability-empty-settings", "no-events"}:
                    raise RpcError(-32601, "Method not found")
                return list_types(params, self.fault)
            case "events/poll":
                return self._poll(params)
            case "events/subscribe":
                return await self.webhooks.subscribe(principal, params)
            case "events/unsubscribe":
                return await self.webhooks.unsubscribe(principal, params)
            case "tools/call":
                if params.get("name") != "emit":
                    raise RpcError(-32602, "Unknown tool")
                self.log.append_event()
                self.webhooks.notify()
                return {"content": []}
            case _:
                raise RpcError(-32601, f"Method not found: {method}")

    def _handshake(self, method: str) -> Json:
        settings: Any = {"listChanged": True}
        if self.fault == "capability-empty-settings":
            settings = {}
        capabilities: Json = {"events": settings, "extensions": {EXTENSION: settings}, "tools": {}}
        if self.fault == "capability-top-level":
            del capabilities["events"]
        if self.fault == "capability-both-handshakes" and method == "initialize":
            capabilities = {}
        if self.fault in {"fallback-method-not-found", "no-events"}:
            capabilities = {}
        return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": "events"}}

    def _poll(self, params: Json) -> Json:
        if self.fault == "poll-implemented":
            raise RpcError(-32601, "Method not found")
        if self.fault == "poll-bootstraps-subscription" and params.get("cursor") is None:
            raise RpcError(-32011, "NotFound: subscription", {"kind": "subscription"})
        if self.fault == "poll-errors-are-jsonrpc" and params.get("name") not in TYPES:
            return {"error": "no such event"}
        if self.fault == "cursor-absent-equals-null" and "cursor" not in params:
            raise RpcError(-32602, "InvalidParams: no cursor")
        if "name" not in params:
            if self.fault == "poll-one-subscription-per-request":
                return {"events": [], "cursor": None, "nextPollMs": 1000}
            raise RpcError(-32602, "InvalidParams: no name")
        self._check_subscription(params, "poll")
        return self.log.poll(params)

    def _check_subscription(self, params: Json, mode: str) -> None:
        method = {"poll": "poll", "push": "stream"}[mode]
        described = find_type(params.get("name"), self.fault)
        if mode not in described["delivery"] and self.fault not in {f"{method}-mode-unsupported", "error-unsupported"}:
            raise RpcError(-32014, "Unsupported: this delivery mode", {"feature": "deliveryMode", "value": mode})
        if self.fault not in {f"{method}-invalid-arguments", "error-invalid-params"}:
            check_arguments(params.get("arguments", {}))

    # -- events/stream

    def _open_stream(self, message: Json) -> Response:
        if self.fault == "stream-implemented":
            raise RpcError(-32601, "Method not found")
        params: Json = message["params"]
        if self.fault != "stream-error-before-open":
            self._check_subscription(params, "push")
        if self.fault == "stream-exempt-from-concurrency-cap" and self.streams >= STREAMS_CAP:
            raise RpcError(-32013, "ResourceExhausted: streams", {"limit": "streams", "max": STREAMS_CAP})
        return StreamingResponse(self._stream(message["id"], params), media_type="text/event-stream")

    async def _stream(self, request_id: int | str, params: Json) -> AsyncGenerator[str]:
        self.streams += 1
        try:
            async for frame in self._list_frames(params):
                for line in self._encode(request_id, frame):
                    yield line
        finally:
            self.streams -= 1
            self.closed.append(request_id)

    async def _list_frames(self, params: Json) -> AsyncGenerator[Json]:
        position, truncated = self.log.parse_cursor(params.get("cursor"))
        if self.fault == "stream-resumes":
            position = len(self.log.events)
        yield self._notification("active", {"cursor": self.log.cursor(position), "truncated": truncated})
        if self.fault == "stream-carries-only-event-notifications":
            yield {"method": "notifications/message", "params": {"level": "info", "data": "hello"}}
        if self.fault == "stream-final-result-timing":
            yield {"result": {}}
        while True:
            is_slow = self.fault == "stream-heartbeat-interval"
            pause = SLOW_HEARTBEAT_SECONDS if is_slow else HEARTBEAT_SECONDS
            grown = await self.log.wait_for_growth(position, pause)
            for event in self.log.events[position:]:
                position += 1
                yield self._notification("event", {**event, "cursor": self.log.cursor(position)})
            if not grown:
                yield self._notification("heartbeat", {"cursor": self.log.cursor(position)})

    def _notification(self, kind: str, params: Json) -> Json:
        rewrite = FRAMES.get((kind, self.fault))
        return {"method": f"notifications/events/{kind}", "params": rewrite(params) if rewrite else params}

    def _encode(self, request_id: int | str, frame: Mapping[str, Any]) -> list[str]:
        if frame.get("method", "").endswith("/heartbeat"):
            if self.fault == "stream-heartbeat-required":
                return []
            if self.fault == "stream-cancel-stops-delivery":
                return [self._encode_message(each, frame) for each in (*self.closed, request_id)]
            if self.fault == "stream-heartbeat-not-sse-comment":
                return [": ping\n\n", self._encode_message(request_id, frame)]
        return [self._encode_message(request_id, frame)]

    def _encode_message(self, request_id: int | str, frame: Mapping[str, Any]) -> str:
        if "result" in frame:
            return f"data: {json.dumps({'jsonrpc': '2.0', 'id': request_id, **frame})}\n\n"
        known: Any = str(request_id) + "x" if self.fault == "stream-subscription-id-meta" else request_id
        params = {**frame["params"], "_meta": {SUBSCRIPTION_ID: known}}
        return f"data: {json.dumps({'jsonrpc': '2.0', **frame, 'params': params})}\n\n"


@asynccontextmanager
async def serving_events(server: EventsServer) -> AsyncGenerator[str]:
    async with serving(server.app()) as http:
        try:
            yield http.url
        finally:
            await server.webhooks.close()
