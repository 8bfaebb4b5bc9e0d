"""MCP clients on httpx that show a test every byte of a request and every frame of a response.

modern = Modern(http, url)                      2026-07-28: each request says what it declares
task = await modern.result("tasks/get", {"taskId": task_id})
async with modern.listening({"taskIds": [task_id]}) as stream:
    acknowledged = await stream.next()

async with legacy_session(http, url) as session:           2025-11-25, or what `version` says
    created = await session.result("tools/call", {"name": "work", "task": {}})
    async with session.stream() as stream:                 the session's own (GET)
        await stream.next("notifications/tasks/status")
"""

import asyncio
import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from tests.support.limits import WAIT_SECONDS

MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
TASKS: Final = "io.modelcontextprotocol/tasks"
TASKS_DECLARED: Final[dict[str, Any]] = {"extensions": {TASKS: {}}, "elicitation": {"form": {}}}
ACCEPT: Final = {"accept": "application/json, text/event-stream"}
NAME_HEADER_PARAMS: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
Json = dict[str, Any]


class JsonRpcErrorResponse(Exception):
    """The response was a JSON-RPC error."""

    def __init__(self, error: Json, status: int) -> None:
        super().__init__(f"{error.get('code')} {error.get('message')}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")
        self.status = status


class JsonRpcMessages:
    """The JSON-RPC messages of one response, whether it is JSON or a stream of events."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._messages = self._read()

    async def read_message(
        self, method: str | None = None, *, where: Callable[[Json], bool] = lambda _params: True
    ) -> Json:
        """The next message; with `method`, the next one of this method whose params match. Others are skipped."""
        async with asyncio.timeout(WAIT_SECONDS):
            async for message in self._messages:
                if method is None or (message.get("method") == method and where(message.get("params", {}))):
                    return message
        raise AssertionError("The stream has ended.")

    async def read_response(self, received: list[Json] | None = None) -> Json:
        """The response to the request; also collects the messages before it."""
        while "method" in (message := await self.read_message()):
            if received is not None:
                received.append(message)
        if "error" in message:
            raise JsonRpcErrorResponse(message["error"], self.response.status_code)
        result: Json = message["result"]
        return result

    async def _read(self) -> AsyncIterator[Json]:
        if not self.response.headers.get("content-type", "").startswith("text/event-stream"):
            body = await self.response.aread()
            assert body, f"HTTP {self.response.status_code} without a body"
            yield json.loads(body)
            return
        async for line in self.response.aiter_lines():
            if line.startswith("data:") and (data := line.removeprefix("data:").strip()):
                yield json.loads(data)


@dataclass(slots=True)
class ModernClient:
    http: httpx.AsyncClient
    url: str
    key: str | None = None
    name: str | None = None
    """The name in the `clientInfo` of each request; None: it has none."""
    _ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    @asynccontextmanager
    async def open_request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        declare: Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncGenerator[JsonRpcMessages]:
        envelope = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": TASKS_DECLARED if declare is None else declare,
        }
        if self.name is not None:
            envelope["io.modelcontextprotocol/clientInfo"] = {"name": self.name, "version": "1"}
        asked = {**params, "_meta": {**envelope, **params.get("_meta", {})}}
        name = params.get("taskId") if method.startswith("tasks/") else params.get(NAME_HEADER_PARAMS.get(method, ""))
        sent = {"mcp-protocol-version": MODERN, "mcp-method": method, **({"mcp-name": name} if name else {})}
        body = {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": asked}
        async with self.http.stream(
            "POST",
            self.url,
            json=body,
            headers={**ACCEPT, **_authorization_header(self.key), **sent, **(headers or {})},
        ) as response:
            yield JsonRpcMessages(response)

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        declare: Json | None = None,
        headers: Mapping[str, str] | None = None,
        received: list[Json] | None = None,
    ) -> Json:
        """The result; raises `Refused`."""
        async with self.open_request(method, params, declare=declare, headers=headers) as frames:
            return await frames.read_response(received)

    @asynccontextmanager
    async def open_subscription(
        self, notifications: Json, *, declare: Json | None = None
    ) -> AsyncGenerator[JsonRpcMessages]:
        async with self.open_request(
            "subscriptions/listen", {"notifications": notifications}, declare=declare
        ) as frames:
            yield frames


@dataclass(slots=True)
class LegacyClientSession:
    """A legacy session."""

    http: httpx.AsyncClient
    url: str
    headers: dict[str, str]
    initialize_result: Json
    last_id: int = 0
    """The id of the last request."""
    _ids: "itertools.count[int]" = field(default_factory=lambda: itertools.count(1))

    @asynccontextmanager
    async def open_request(self, method: str, params: Mapping[str, Any]) -> AsyncGenerator[JsonRpcMessages]:
        self.last_id = next(self._ids)
        body = {"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": dict(params)}
        async with self.http.stream("POST", self.url, json=body, headers=self.headers) as response:
            yield JsonRpcMessages(response)

    async def request(self, method: str, params: Mapping[str, Any], *, received: list[Json] | None = None) -> Json:
        async with self.open_request(method, params) as frames:
            return await frames.read_response(received)

    @asynccontextmanager
    async def open_event_stream(self) -> AsyncGenerator[JsonRpcMessages]:
        """The session's own stream, which a client may open once."""
        async with self.http.stream("GET", self.url, headers=self.headers) as response:
            assert response.status_code == 200, response.status_code
            yield JsonRpcMessages(response)

    async def send_notification(self, method: str) -> None:
        await self._send({"jsonrpc": "2.0", "method": method})

    async def cancel_request(self, request_id: int) -> None:
        """Cancel a request, as Esc does in a client of this era."""
        params = {"requestId": request_id, "reason": "Esc"}
        await self._send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})

    async def send_response(self, request: Json, result: Json) -> None:
        """Answer a request of the server."""
        await self._send({"jsonrpc": "2.0", "id": request["id"], "result": result})

    async def send_error(self, request: Json) -> None:
        """Answer a request of the server with an error."""
        await self._send({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "Not here"}})

    async def _send(self, message: Json) -> None:
        response = await self.http.post(self.url, json=message, headers=self.headers)
        assert response.status_code == 202, response.text


@asynccontextmanager
async def legacy_session(
    http: httpx.AsyncClient,
    url: str,
    *,
    key: str | None = None,
    version: str = LEGACY,
    capabilities: Json | None = None,
    client_name: str = "test",
) -> AsyncGenerator[LegacyClientSession]:
    """Open a session with the handshake, and end it as a client does."""
    declared: Json = {"elicitation": {}} if capabilities is None else capabilities
    greeting: Json = {
        "protocolVersion": version,
        "capabilities": declared,
        "clientInfo": {"name": client_name, "version": "1"},
    }
    session = LegacyClientSession(http, url, {**ACCEPT, **_authorization_header(key)}, {})
    async with session.open_request("initialize", greeting) as frames:
        session.initialize_result = await frames.read_response()
        session.headers["mcp-session-id"] = frames.response.headers["mcp-session-id"]
    session.headers["mcp-protocol-version"] = version
    await session.send_notification("notifications/initialized")
    try:
        yield session
    finally:
        await http.delete(url, headers=session.headers)


def read_message_texts(text: str) -> str:
    """The messages of a response: a fast one is one message, a slow one a stream whose sealed event ids differ each time."""
    if text.startswith("{"):
        return text
    return "".join(line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:"))


def _authorization_header(key: str | None) -> dict[str, str]:
    return {} if key is None else {"authorization": f"Bearer {key}"}
