"""The bridge of `ringback mcp` in this process, between a client and a service that the test scripts.

    async with running_bridge() as stage:
        stage.service.script("tools/call", httpx2.ReadError("reset"))
        stage.send_request("tools/call", {"name": "echo"}, request_id=1)
        response = await stage.wait_for_response(1)

The service responds to what is not scripted: with sessions to `initialize`, 202 to notifications, an empty result to other
requests, and an open stream to GET. Pauses take no time (`FakeClock`).
"""

import asyncio
import json
from collections import defaultdict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx2
from mcp_types import JSONRPCMessage, jsonrpc_message_adapter

from ringback.cli.stdio_bridge.bridge import StdioBridge
from ringback.cli.stdio_bridge.client_output import ClientOutput
from ringback.cli.stdio_bridge.connection import ServiceConnection
from ringback.cli.stdio_bridge.endpoint import EndpointConfig, ServiceEndpoint
from ringback.cli.stdio_bridge.retries import RetryLimits
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS

BRIDGE_URL: Final = "http://127.0.0.1:8090/mcp"
SESSION_HEADER: Final = "mcp-session-id"
MODERN_META: Final[dict[str, Any]] = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}
INITIALIZE_PARAMS: Final[dict[str, Any]] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "client", "version": "1"},
}


class ScriptedStream(httpx2.AsyncByteStream):
    """A response stream that the test writes, breaks or ends."""

    def __init__(self) -> None:
        self._chunks: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()

    def write_event(self, message: Mapping[str, Any], *, event_id: str | None = None) -> None:
        head = "" if event_id is None else f"id: {event_id}\n"
        self._chunks.put_nowait(f"{head}data: {json.dumps(message)}\n\n".encode())

    def write_empty_event(self, event_id: str) -> None:
        """The first event of a stream, which has an id and no data."""
        self._chunks.put_nowait(f"id: {event_id}\ndata: \n\n".encode())

    def break_off(self) -> None:
        self._chunks.put_nowait(httpx2.ReadError("reset"))

    def end(self) -> None:
        self._chunks.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (chunk := await self._chunks.get()) is not None:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    http_method: str
    headers: httpx2.Headers
    query: Mapping[str, str]
    message: dict[str, Any]

    @property
    def method(self) -> str | None:
        return self.message.get("method")

    @property
    def session_id(self) -> str | None:
        return self.headers.get(SESSION_HEADER)

    @property
    def idempotency_key(self) -> str | None:
        return self.message["params"].get("_meta", {}).get("ringback/idempotencyKey")


ScriptedResponse = httpx2.Response | Exception | ScriptedStream | dict[str, Any]
"""A response, an exception of the connection, a stream, or a result."""


class ScriptedService(httpx2.AsyncBaseTransport):
    def __init__(self) -> None:
        self.requests: list[RecordedRequest] = []
        self.sessions: list[str] = []
        self.lost_sessions: set[str] = set()
        """Sessions that the service no longer knows."""
        self.is_down = False
        self.version = "2025-11-25"
        self.capabilities: dict[str, Any] = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
        self.changed = asyncio.Event()
        self._scripts: dict[str, deque[ScriptedResponse | Callable[[RecordedRequest], ScriptedResponse]]] = defaultdict(
            deque
        )

    def script(self, method: str, *responses: ScriptedResponse | Callable[[RecordedRequest], ScriptedResponse]) -> None:
        """The responses to the next requests with this JSON-RPC method, or `GET`."""
        self._scripts[method].extend(responses)

    def select(self, method: str) -> list[RecordedRequest]:
        return [each for each in self.requests if method in (each.method, each.http_method)]

    @property
    def answers(self) -> list[dict[str, Any]]:
        """The client's answers to questions of the service."""
        return [each.message for each in self.requests if "result" in each.message]

    async def wait_until(self, reached: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while not reached():
                self.changed.clear()
                await self.changed.wait()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if self.is_down:
            raise httpx2.ConnectError("refused")
        body = await request.aread()
        recorded = RecordedRequest(
            request.method, request.headers, dict(request.url.params), json.loads(body) if body else {}
        )
        self.requests.append(recorded)
        self.changed.set()
        if recorded.session_id in self.lost_sessions:
            return httpx2.Response(404, json={"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "?"}})
        if script := self._scripts[recorded.method or recorded.http_method]:
            scripted = script.popleft()
            return self._build_response(recorded, scripted(recorded) if callable(scripted) else scripted)
        return self._respond(recorded)

    def _build_response(self, recorded: RecordedRequest, scripted: ScriptedResponse) -> httpx2.Response:
        if isinstance(scripted, Exception):
            raise scripted
        if isinstance(scripted, httpx2.Response):
            return scripted
        if isinstance(scripted, ScriptedStream):
            return httpx2.Response(200, headers={"content-type": "text/event-stream"}, stream=scripted)
        return self._build_result(recorded, scripted)

    def _respond(self, recorded: RecordedRequest) -> httpx2.Response:
        if recorded.http_method == "GET":
            return self._build_response(recorded, ScriptedStream())
        if recorded.method == "initialize":
            self.sessions.append(f"session-{len(self.sessions) + 1}")
            result = {
                "protocolVersion": self.version,
                "capabilities": self.capabilities,
                "serverInfo": {"name": "s", "version": "1"},
            }
            return self._build_result(recorded, result, **{SESSION_HEADER: self.sessions[-1]})
        if "id" not in recorded.message or "method" not in recorded.message:
            return httpx2.Response(202)
        return self._build_result(recorded, {})

    def _build_result(self, recorded: RecordedRequest, result: dict[str, Any], **headers: str) -> httpx2.Response:
        return httpx2.Response(
            200, json={"jsonrpc": "2.0", "id": recorded.message["id"], "result": result}, headers=headers
        )


class BridgeStage:
    def __init__(self, limits: RetryLimits) -> None:
        self.service = ScriptedService()
        self.clock = FakeClock()
        self.received: list[dict[str, Any]] = []
        """Messages to the client."""
        endpoint = ServiceEndpoint(EndpointConfig(url=BRIDGE_URL, api_key="rbk_1"), self.service)
        connection = ServiceConnection(endpoint, clock=self.clock, limits=limits)
        self.bridge = StdioBridge(connection, ClientOutput(self._receive))

    async def _receive(self, message: JSONRPCMessage) -> None:
        self.received.append(message.model_dump(by_alias=True, mode="json", exclude_unset=True))
        self.service.changed.set()

    def send(self, **message: Any) -> None:
        self.bridge.handle_message(jsonrpc_message_adapter.validate_python({"jsonrpc": "2.0", **message}))

    def send_request(self, method: str, params: Mapping[str, Any] | None = None, *, request_id: int | str = 1) -> None:
        self.send(id=request_id, method=method, params=dict(params or {}))

    async def request(
        self, method: str, params: Mapping[str, Any] | None = None, *, request_id: int | str = 1
    ) -> dict[str, Any]:
        self.send_request(method, params, request_id=request_id)
        return await self.wait_for_response(request_id)

    async def wait_for_response(self, request_id: int | str) -> dict[str, Any]:
        await self.service.wait_until(lambda: bool(self._find_responses(request_id)))
        (response,) = self._find_responses(request_id)
        return response

    async def wait_for_notification(self, method: str) -> dict[str, Any]:
        await self.service.wait_until(lambda: bool(self.select(method)))
        return self.select(method)[0]

    def select(self, method: str) -> list[dict[str, Any]]:
        return [each for each in self.received if each.get("method") == method]

    async def begin_session(self) -> None:
        """The handshake of a legacy client, until the session's stream is open."""
        await self.request("initialize", INITIALIZE_PARAMS, request_id="initialize")
        self.send(method="notifications/initialized")
        await self.service.wait_until(lambda: bool(self.service.select("GET")))

    def _find_responses(self, request_id: int | str) -> list[dict[str, Any]]:
        return [each for each in self.received if each.get("id") == request_id and "method" not in each]


@asynccontextmanager
async def running_bridge(limits: RetryLimits | None = None) -> AsyncGenerator[BridgeStage]:
    stage = BridgeStage(limits or RetryLimits())
    try:
        yield stage
    finally:
        await stage.bridge.aclose()
