"""One connection to an MCP server: negotiates the protocol or rejoins a legacy session, and sends requests."""

import asyncio
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from typing import Any, Final, TypeVar, cast

import anyio
import httpx2
import mcp_types
from mcp import ClientSession, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.dispatcher import CallOptions, ProgressFnT
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from pydantic import ValidationError

from ringback import __version__
from ringback.client.durable.direct.http_transport import ConfiningTransport
from ringback.client.durable.direct.questions import make_elicitation_callback
from ringback.client.durable.direct.server import McpCommand, McpServer
from ringback.client.durable.handle import CallHandle
from ringback.protocol.errors import InvalidUpstreamResponse, RequestNotSent, ResponseLost, UpstreamError
from ringback.protocol.http_failures import CONNECT_TIMEOUT_SECONDS, WRITE_TIMEOUT_SECONDS
from ringback.protocol.keepalive import keepalive_options
from ringback.protocol.legacy_session_transport import LegacySessionTransport
from ringback.protocol.request_envelope import add_envelope
from ringback.protocol.resumable_requests import ResumableRequest, resume_options
from ringback.protocol.sessions import SESSION_HEADER, LegacySessionId, NegotiatedProtocol, StreamPosition
from ringback.protocol.transport_errors import EVENT_BYTES_MAX, to_request_error

T = TypeVar("T")

HANDSHAKE_TIMEOUT_SECONDS: Final = 60.0
"""A server that is started by its first request, as on serverless platforms, may need this long."""
TOOL_PAGES_MAX: Final = 100
"""More pages than this are taken for an endless list."""
CANCEL_SECONDS: Final = 5.0
"""For sending a cancellation, as in the SDK."""
CLIENT_INFO: Final = mcp_types.Implementation(name="ringback-client", version=__version__)
_CLIENT_INFO_META: Final = CLIENT_INFO.model_dump(by_alias=True, mode="json", exclude_none=True)


async def use_connection(
    server: McpServer | McpCommand,
    work: Callable[["DirectConnection"], Awaitable[T]],
    *,
    handle: CallHandle,
    rejoined: LegacySessionId | None = None,
    expects_modern: bool = False,
) -> T:
    """Connect, negotiate or rejoin, and do the work for the call. Raises `RequestFailed`, and what the work raises.

    `expects_modern` says that the server spoke 2026-07-28 before, and that the work is about what it keeps in that protocol.

    The SDK's task groups would wrap these exceptions, so none of them leaves its contexts. What the work has returned or raised
    counts, also if the connection breaks while it is closed.
    """
    outcome: list[T] = []
    problem: Exception | None = None
    try:
        async with _open_connection(server, handle, rejoined) as (session, make_connection):
            try:
                await _negotiate(session, rejoined, expects_modern=expects_modern)
                outcome.append(await work(make_connection()))
            except Exception as error:  # noqa: BLE001 - raised below, outside the task groups
                problem = error
    except ExceptionGroup as group:
        _raise_if_cancelled()
        if problem is None and not outcome:
            raise ResponseLost(f"The connection broke ({type(group.exceptions[0]).__name__}).") from group
    _raise_if_cancelled()
    if problem is not None:
        raise problem
    return outcome[0]


def _raise_if_cancelled() -> None:
    """A task group raises the errors of its tasks alone, although its host was cancelled meanwhile (anyio 4.16)."""
    if (task := asyncio.current_task()) is not None and task.cancelling():
        raise asyncio.CancelledError


@asynccontextmanager
async def _open_connection(
    server: McpServer | McpCommand, handle: CallHandle, rejoined: LegacySessionId | None
) -> AsyncGenerator[tuple[ClientSession, Callable[[], "DirectConnection"]]]:
    answer = None if server.answer_input is None else make_elicitation_callback(server.answer_input, handle)
    async with AsyncExitStack() as stack:
        if isinstance(server, McpCommand):
            transport = confining = None
            streams: Any = await _start_command(server, stack)
        else:
            confining = _make_transport(server)
            transport = LegacySessionTransport(confining, rejoined=None if rejoined is None else rejoined.session_id)
            http = await stack.enter_async_context(_make_http_client(server, transport, rejoined))
            streams = await stack.enter_async_context(
                streamable_http_client(server.url, http_client=http, max_sse_event_size=EVENT_BYTES_MAX)
            )
        dispatcher: JSONRPCDispatcher[Any] = JSONRPCDispatcher(*streams)
        session = await stack.enter_async_context(
            ClientSession(dispatcher=dispatcher, client_info=CLIENT_INFO, elicitation_callback=answer)
        )
        yield (
            session,
            lambda: DirectConnection(session, dispatcher, transport, confining, answers_input=answer is not None),
        )


async def _start_command(server: McpCommand, stack: AsyncExitStack) -> Any:
    """Start the command, and return the streams of its messages. What it writes to stderr goes to ours."""
    env = None if server.env is None else dict(server.env)
    parameters = StdioServerParameters(command=server.command, args=list(server.args), env=env, cwd=server.cwd)
    try:
        return await stack.enter_async_context(stdio_client(parameters))
    except (OSError, ValueError) as error:
        raise RequestNotSent(f"The command {server.command!r} cannot be started: {error}.") from error


def _make_transport(server: McpServer) -> ConfiningTransport:
    inner = server.transport or httpx2.AsyncHTTPTransport(socket_options=keepalive_options())
    return ConfiningTransport(inner, keeps_inner=server.transport is not None)


def _make_http_client(
    server: McpServer, transport: httpx2.AsyncBaseTransport, rejoined: LegacySessionId | None
) -> httpx2.AsyncClient:
    session = {} if rejoined is None else {SESSION_HEADER: rejoined.session_id}
    own = {**session, "accept-encoding": "identity"}  # `ConfiningTransport` reads the bytes as they come
    return httpx2.AsyncClient(
        transport=transport,
        headers={"user-agent": f"ringback-client/{__version__}", **server.headers, **own},
        # No read timeout, because closing the stream would cancel the tool. The transport's probes detect a lost host.
        timeout=httpx2.Timeout(connect=CONNECT_TIMEOUT_SECONDS, write=WRITE_TIMEOUT_SECONDS, read=None, pool=None),
    )


async def _negotiate(session: ClientSession, rejoined: LegacySessionId | None, *, expects_modern: bool) -> None:
    if rejoined is not None:
        session.adopt(
            mcp_types.InitializeResult(
                protocol_version=rejoined.protocol_version,
                capabilities=mcp_types.ServerCapabilities(),
                server_info=mcp_types.Implementation(name="", version=""),
            )
        )
        return
    try:
        with anyio.fail_after(HANDSHAKE_TIMEOUT_SECONDS):
            await _discover_or_initialize(session, expects_modern=expects_modern)
    except TimeoutError:
        raise RequestNotSent(f"The server did not negotiate within {HANDSHAKE_TIMEOUT_SECONDS:.0f} s.") from None
    except MCPError as error:
        failure = to_request_error(error.error)
        if isinstance(failure, UpstreamError):
            raise RequestNotSent(f"The server refused to negotiate: {error.error.message[:200]}") from None
        raise failure from None
    except (ValidationError, RuntimeError):
        raise InvalidUpstreamResponse("The server does not negotiate as an MCP server does. Is this its URL?") from None


async def _discover_or_initialize(session: ClientSession, *, expects_modern: bool) -> None:
    """The legacy handshake follows if the server refuses the modern one. A proxy's answer to it, or none, is no refusal."""
    try:
        await session.discover()
    except MCPError as error:
        failure = to_request_error(error.error)
        is_refused = isinstance(failure, UpstreamError)
        if isinstance(failure, RequestNotSent) or (expects_modern and not is_refused):
            raise
    except (ValidationError, RuntimeError):
        pass  # it responded without a modern version
    else:
        return
    await session.initialize()


class DirectConnection:
    def __init__(
        self,
        session: ClientSession,
        dispatcher: JSONRPCDispatcher[Any],
        transport: LegacySessionTransport | None,
        confining: ConfiningTransport | None,
        *,
        answers_input: bool,
    ) -> None:
        """The transports are None for a command, which has no session that could be rejoined."""
        self.answers_input = answers_input
        """Whether questions of the server on this connection are answered."""
        self._dispatcher = dispatcher
        self._transport = transport
        self._confining = confining
        capabilities = session.server_capabilities
        self.protocol = NegotiatedProtocol(
            protocol_version=session.protocol_version or "",
            capabilities={} if capabilities is None else capabilities.model_dump(by_alias=True, exclude_none=True),
        )
        # Connections of several processes share a session, and its request ids.
        prefix = secrets.token_hex(8)
        self._request_ids = (f"ringback-{prefix}-{number}" for number in count(1))

    @property
    def session_id(self) -> LegacySessionId | None:
        """Identifies the session for `use_connection`; None if it cannot be rejoined."""
        if self.protocol.is_modern or self._transport is None or self._transport.session_id is None:
            return None
        return LegacySessionId(session_id=self._transport.session_id, protocol_version=self.protocol.protocol_version)

    @property
    def retry_seconds(self) -> float:
        """How long the server asks its clients to wait before they read a stream on."""
        return 0.0 if self._transport is None else self._transport.retry_seconds

    @property
    def reads_stream_on(self) -> bool:
        """Whether the server has begun to send the rest of a stream, so that it knows the rejoined session."""
        return self._transport is not None and self._transport.reads_stream_on

    def keep_session(self, *, keep: bool) -> None:
        """Whether the server keeps the session after this connection, because a call will be rejoined in it."""
        if self._transport is not None:
            self._transport.resumable_calls = int(keep)

    async def wait_until_streamed(self) -> None:
        """Wait until the server has begun a stream as its response to a request that begins now, for ever if it does not."""
        if self._transport is None:
            await asyncio.Event().wait()
        else:
            await self._transport.wait_until_streamed()

    async def send_request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        client_capabilities: Mapping[str, Any] | None = None,
        tool_input_schema: Mapping[str, Any] | None = None,
        on_progress: ProgressFnT | None = None,
        options: CallOptions | None = None,
    ) -> dict[str, Any]:
        """Return the raw result; raises `RequestFailed`. Cancelling it cancels the request, unless `options` say otherwise."""
        stamped, headers = add_envelope(
            method,
            params,
            protocol_version=self.protocol.protocol_version,
            client_info=_CLIENT_INFO_META,
            client_capabilities=client_capabilities or {},
            tool_input_schema=tool_input_schema,
        )
        merged: CallOptions = {"request_id": next(self._request_ids), **(options or {}), "headers": headers}
        if on_progress is not None:
            merged["on_progress"] = on_progress
        try:
            return await self._dispatcher.send_raw_request(method, stamped, merged)
        except MCPError as error:
            raise to_request_error(error.error) from None

    async def send_resumable_request(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        on_progress: ProgressFnT,
        on_position: Callable[[StreamPosition], None],
    ) -> dict[str, Any]:
        """Send a request in a legacy session. Cancelling it cancels the request until its response can be read elsewhere."""
        session_id = self.session_id
        if session_id is None:
            return await self.send_request(method, params, on_progress=on_progress)
        request_id = next(self._request_ids)
        request = ResumableRequest(session_id, request_id, on_position)
        try:
            return await self.send_request(method, params, on_progress=on_progress, options=request.options)
        except asyncio.CancelledError:
            if request.position is None:
                with anyio.move_on_after(CANCEL_SECONDS, shield=True):
                    await self.send_notification("notifications/cancelled", {"requestId": request_id})
            raise

    async def resume_stream(self, position: StreamPosition, *, on_progress: ProgressFnT) -> dict[str, Any]:
        """Read the response to an earlier request in a rejoined session. Cancelling it cancels nothing."""
        if self._confining is not None:
            self._confining.resumed_id = position.request_id
        return await self.send_request("tools/call", {}, on_progress=on_progress, options=resume_options(position))

    async def send_notification(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a notification of a legacy session, and wait until it has arrived: a ping is sent after it."""
        _, headers = add_envelope(
            method,
            params,
            protocol_version=self.protocol.protocol_version,
            client_info=_CLIENT_INFO_META,
            client_capabilities={},
            tool_input_schema=None,
        )
        await self._dispatcher.notify(method, params, {"headers": headers})
        with suppress(UpstreamError):
            await self.send_request("ping", {}, options={"cancel_on_abandon": False})

    async def find_tool(self, name: str) -> Mapping[str, Any] | None:
        """The tool as the server lists it; None if it lists none of this name."""
        cursors: set[str] = set()
        params: dict[str, Any] = {}
        for _ in range(TOOL_PAGES_MAX):
            page = await self.send_request("tools/list", params)
            for tool in _get_tools(page):
                if tool.get("name") == name:
                    return tool
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or cursor in cursors:
                break
            cursors.add(cursor)
            params = {"cursor": cursor}
        return None


def _get_tools(page: Mapping[str, Any]) -> list[dict[str, Any]]:
    tools = page.get("tools")
    if not isinstance(tools, list):
        raise InvalidUpstreamResponse("The server returned a response that is no list of tools.")
    return [cast("dict[str, Any]", tool) for tool in cast("list[Any]", tools) if isinstance(tool, dict)]
