"""Real MCP servers for tests: the SDK's, over real sockets, in this process, observable and controllable.

    stage = Stage()
    async with serving(stage.app()) as server, opened(http_config(server.url)) as upstreams:
        ending = await drive(upstreams, "echo", {"text": "hello"})

`legacy_only` makes a server of before 2026-07-28 of it, `Spoiled` puts a test's own bytes in the place of answers, and
`server.kill()` acts like SIGKILL: it resets every connection and stops listening.
"""

import asyncio
import json
import socket
import ssl
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import mcp_types as types
import uvicorn
from mcp import MCPError
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ringback.domain.call import Call
from ringback.domain.call_outcome import CallCompletion
from ringback.domain.clock import Clock, SystemClock
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.runner.drivers.driver import BoundDriverPort
from ringback.runner.drivers.selection import BoundDriverProvider, predict_driver_name
from ringback.upstreams.config import MAX_CONCURRENT_HTTP, MAX_CONCURRENT_STDIO, UpstreamConfig, UpstreamTransport
from ringback.upstreams.registry import UpstreamRegistry
from tests.support.examples import CALL
from tests.support.limits import WAIT_SECONDS, growing_pauses
from tests.support.listeners import stop_listening
from tests.support.prompt_server import PromptServer
from tests.support.recording_call_context import OnProgress, RecordingCallContext, ignore_progress

RAW_SERVER: Final = Path(__file__).with_name("raw_stdio_upstream.py")
STDIO_SERVER: Final = Path(__file__).with_name("stdio_upstream.py")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Context = ServerRequestContext[Any, Any]


class ControlledUpstream:
    """An MCP server that its test controls: the requests that came in, those that wait, and their release.

    `echo` returns its arguments, `hold` waits for `release`, `steps` reports progress, `halfway` does so before and after it
    waits for `release`, `flood` a thousand times, `fail` returns isError, `refuse` a JSON-RPC error, `learn` adds a tool.
    """

    def __init__(self) -> None:
        self.tools = [
            types.Tool(name=name, input_schema={"type": "object"})
            for name in ("echo", "hold", "steps", "halfway", "flood", "fail", "refuse", "learn", "spoiled")
        ]
        self.calls: list[types.CallToolRequestParams] = []
        self.held_count = 0
        self.release = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.versions: list[str] = []
        self._held_changed = asyncio.Event()
        self._bus = InMemorySubscriptionBus()

    def app(self, **options: Any) -> App:
        server = Server(
            "stage",
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_subscriptions_listen=ListenHandler(self._bus),
        )
        return server.streamable_http_app(**options)

    async def wait_until_held(self, count: int) -> None:
        """Wait until this number of calls is held at once."""
        while self.held_count < count:
            self._held_changed.clear()
            await self._held_changed.wait()

    async def _list_tools(self, _context: Context, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=self.tools)

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        self.calls.append(params)
        self.versions.append(context.protocol_version)
        match params.name:
            case "hold":
                await self._hold_call()
            case "steps":
                await context.session.report_progress(1, 2, "half")
                await context.session.report_progress(2, 2, None)
            case "halfway":
                await context.session.report_progress(1, 2, "half")
                await self._hold_call()
                await context.session.report_progress(2, 2, None)
            case "flood":
                for number in range(1, 1001):
                    await context.session.report_progress(number, 1000, None)
            case "refuse":
                raise MCPError(-32042, "not today", {"retry": False})
            case "learn":
                await self._add_tool(context)
            case _:
                pass
        text = types.TextContent(type="text", text=json.dumps(params.arguments))
        return types.CallToolResult(content=[text], is_error=params.name == "fail")

    async def _hold_call(self) -> None:
        self.held_count += 1
        self._held_changed.set()
        try:
            await self.release.wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        finally:
            self.held_count -= 1

    async def _add_tool(self, context: Context) -> None:
        self.tools = [*self.tools, types.Tool(name="learned", input_schema={"type": "object"})]
        if context.protocol_version in MODERN_PROTOCOL_VERSIONS:
            await self._bus.publish(ToolsListChanged())
        else:
            await context.session.send_notification(types.ToolListChangedNotification())


# -- serving ----------------------------------------------------------------------------------------------------------------


class HttpServer(PromptServer):
    def __init__(self, app: App, port: int, tls: ssl.SSLContext | None = None) -> None:
        config = uvicorn.Config(
            app, log_config=None, access_log=False, ws="none", date_header=False, server_header=False
        )
        super().__init__(config, grace_seconds=0.1)
        self.config.load()
        self.config.ssl = tls
        self._socket = bind_socket(port)
        self._ready = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self.port: int = self._socket.getsockname()[1]

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    @property
    def origin(self) -> str:
        return f"{'http' if self.config.ssl is None else 'https'}://127.0.0.1:{self.port}"

    async def open_connections(self) -> None:
        self._serving = asyncio.create_task(self.serve(sockets=[self._socket]))
        await asyncio.wait_for(self._ready.wait(), WAIT_SECONDS)

    async def kill_server(self) -> None:
        """Reset every connection and stop listening, as if the process had been killed."""
        await stop_listening(*self.servers)
        self._socket.close()
        self.drop_connections()
        self.force_exit = True
        self.stop()
        if self._serving is not None:
            await self._serving
        self.drop_connections()  # sockets that became connections after the first reset

    def drop_connections(self) -> None:
        """Reset every connection, as a failing network does; new connections are served."""
        for connection in list(self.server_state.connections):
            connection.transport.abort()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()


def bind_socket(port: int) -> socket.socket:
    # asyncio turns off Nagle's algorithm only on sockets that were made for TCP by name; with it, each answer takes 40 ms.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    listening.listen(1024)
    return listening


@asynccontextmanager
async def serving(app: App, *, port: int = 0, tls: ssl.SSLContext | None = None) -> AsyncGenerator[HttpServer]:
    server = HttpServer(app, port, tls)
    await server.open_connections()
    try:
        yield server
    finally:
        await server.kill_server()


def make_legacy_app(app: App) -> App:
    """A server that does not know 2026-07-28."""

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope.get("headers", []))
        if headers.get(b"mcp-protocol-version", b"").decode() in MODERN_PROTOCOL_VERSIONS:
            await send_response(send, 400, "text/plain", b"Bad Request: Unsupported protocol version")
        else:
            await app(scope, receive, send)

    return serve


def make_app_of_era(app: App, era: str) -> App:
    """The server as it is, or, for the era `legacy`, one that does not know 2026-07-28."""
    return make_legacy_app(app) if era == "legacy" else app


def make_app_of_older_sdk(app: App) -> App:
    """The same on the SDK for Python until 1.25: it refuses a session that it does not know with a sentence."""
    legacy_app = make_legacy_app(app)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        is_refused = False

        async def send_refusal(message: Message) -> None:
            nonlocal is_refused
            if message["type"] == "http.response.start" and message["status"] == HTTPStatus.NOT_FOUND:
                is_refused = True
                await send({"type": "http.response.start", "status": 400, "headers": []})
            elif is_refused:
                await send({**message, "body": b"Bad Request: No valid session ID provided"})
            else:
                await send(message)

        await legacy_app(scope, receive, send_refusal)

    return serve


ResponseOverride = Callable[[dict[str, Any], Send], Awaitable[None]]


class OverriddenResponses:
    """Hands requests that carry a JSON-RPC method (or `tool:` and a tool's name) to the test, all others to the server."""

    def __init__(self, app: App, spoilings: Mapping[str, ResponseOverride]) -> None:
        self._app = app
        self._spoilings = spoilings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = b""
        more = True
        while more:
            part = await receive()
            body += part.get("body", b"")
            more = part.get("more_body", False)
        message = json.loads(body)
        names = (message.get("method"), f"tool:{message.get('params', {}).get('name')}")
        spoiling = next((self._spoilings[name] for name in names if name in self._spoilings), None)
        if spoiling is not None:
            await spoiling(message, send)
            return
        first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def replay() -> Message:
            return first.pop() if first else await receive()

        await self._app(scope, replay, send)


async def send_response(
    send: Send, status: int, content_type: str, body: bytes, *, promised_bytes: int | None = None
) -> None:
    """A whole response; or one that breaks off, when it promises more bytes than it has."""
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(promised_bytes or len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": promised_bytes is not None})


def respond_with(status: int, content_type: str, body: bytes, *, promised_bytes: int | None = None) -> ResponseOverride:
    async def override(message: dict[str, Any], send: Send) -> None:
        await send_response(send, status, content_type, body, promised_bytes=promised_bytes)

    return override


def respond_with_result(result: Any) -> ResponseOverride:
    async def override(message: dict[str, Any], send: Send) -> None:
        await send_result(message, result, send)

    return override


def respond_with_error(status: int, code: int, message: str) -> ResponseOverride:
    """A JSON-RPC error in a response of this status."""

    async def override(request: dict[str, Any], send: Send) -> None:
        error = {"jsonrpc": "2.0", "id": request["id"], "error": {"code": code, "message": message}}
        await send_response(send, status, "application/json", json.dumps(error).encode())

    return override


async def send_result(message: dict[str, Any], result: Any, send: Send) -> None:
    """A JSON-RPC response with this result, past everything that the SDK's server would check or leave out."""
    await send_json(send, {"jsonrpc": "2.0", "id": message["id"], "result": result})


async def send_json(send: Send, message: dict[str, Any]) -> None:
    await send_response(send, 200, "application/json", json.dumps(message).encode())


# -- calling ----------------------------------------------------------------------------------------------------------------


def make_http_config(url: str, *, name: str = "stage", headers: Mapping[str, str] | None = None) -> UpstreamConfig:
    return UpstreamConfig(
        name=name, transport=UpstreamTransport.HTTP, url=url, headers=headers or {}, max_concurrent=MAX_CONCURRENT_HTTP
    )


def make_python_config(*args: str, name: str = "stage", env: Mapping[str, str] | None = None) -> UpstreamConfig:
    """A stdio server in Python: a script, or `-m` and a module."""
    return UpstreamConfig(
        name=name,
        transport=UpstreamTransport.STDIO,
        command=sys.executable,
        args=args,
        env=env or {},
        max_concurrent=MAX_CONCURRENT_STDIO,
    )


def make_raw_config(**env: str) -> UpstreamConfig:
    """The server of `raw_stdio_upstream`, with these of its variables."""
    return make_python_config(str(RAW_SERVER), env=env)


@asynccontextmanager
async def open_upstreams(
    *configs: UpstreamConfig,
    patience_seconds: float = WAIT_SECONDS,
    clock: Clock | None = None,
    children_folder: Path | None = None,
    hosts: ConfiguredHosts | None = None,
) -> AsyncGenerator[UpstreamRegistry]:
    async with UpstreamRegistry(
        configs,
        clock=clock or SystemClock(),
        random_fraction=lambda: 0.5,
        predict_driver_name=predict_driver_name,
        connect_timeout_seconds=patience_seconds,
        children_folder=children_folder,
        hosts=hosts,
    ) as upstreams:
        yield upstreams


async def wait_until_true(condition: Callable[[], bool]) -> None:
    """Poll for what sends no notification: the health of an upstream, the death of another process."""
    async with asyncio.timeout(WAIT_SECONDS):
        for pause in growing_pauses():
            if condition():
                return
            await asyncio.sleep(pause)


async def wait_until_listening(port: int) -> None:
    """Wait until a server that another process starts accepts connections."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                await writer.wait_closed()
                return


async def wait_for_state(upstreams: UpstreamRegistry, state: str) -> None:
    """Wait until all are in this state: a short patience then judges an upstream that is known, not how fast it was reached."""
    await wait_until_true(lambda: {info.state for info in upstreams.tool_catalog.list_upstreams()} == {state})


def open_bound_driver(upstreams: UpstreamRegistry, call: Call) -> AbstractAsyncContextManager[BoundDriverPort]:
    return BoundDriverProvider(upstreams, clock=SystemClock()).open_call_session(call)


async def run_upstream_call(
    upstreams: UpstreamRegistry,
    tool: str,
    arguments: dict[str, Any] | None = None,
    *,
    upstream: str = "stage",
    meta: dict[str, Any] | None = None,
    on_progress: OnProgress = ignore_progress,
) -> CallCompletion:
    call = replace(CALL, upstream=upstream, tool=tool, arguments=arguments or {}, meta=meta or {})
    async with asyncio.timeout(WAIT_SECONDS), open_bound_driver(upstreams, call) as session:
        ending = await session.run_call(RecordingCallContext(call, on_progress=on_progress))
        assert isinstance(ending, CallCompletion)
        return ending


def get_error_message(ending: CallCompletion) -> str:
    assert ending.error is not None
    return ending.error["message"]
