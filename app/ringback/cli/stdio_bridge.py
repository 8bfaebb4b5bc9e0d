"""Connects the SDK's stdio transport to its HTTP transport, in both eras.

    client ──line──▶ stdio_server ──▶ RequestHeaders.add_headers ─────────▶ streamable_http_client ──POST──▶ Ringback
           ◀──line──              ◀── RequestHeaders.learn_from_response ◀──

Params and results are unchanged. The bridge derives the headers of HTTP from the messages (MCP 2026-07-28, Streamable HTTP,
Request Metadata): the protocol version, the method, the name, and the arguments that a tool expects in headers.
"""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import Any, Final, cast

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    PARSE_ERROR,
    PROTOCOL_VERSION_META_KEY,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from ringback import __version__
from ringback.cli.bridge_cancellation import RequestCanceller
from ringback.cli.output import strip_control_characters
from ringback.domain import jsontext
from ringback.waits import wait_first

RESPONSE_BYTES_MAX: Final = 17 * 1024 * 1024
"""The largest event of the service: the largest stored result (16 MiB) and the JSON-RPC around it."""
CONNECT_SECONDS: Final = 10.0
WRITE_SECONDS: Final = 60.0
SESSION_END_TIMEOUT_SECONDS: Final = 5.0
"""For ending the session, so that a service that does not respond does not delay the exit."""
LAST_RESPONSES_SECONDS: Final = 1.0
"""For pending responses when standard input ends, so that the last line of a pipe gets its response. Clients that close
standard input allow two seconds for the exit."""
DETAIL_LENGTH_MAX: Final = 500

SESSION_HEADER: Final = "mcp-session-id"
_TASK_METHODS: Final = ("tasks/get", "tasks/update", "tasks/cancel")
_NAME_PARAM_BY_METHOD: Final[Mapping[str, str]] = {**NAME_BEARING_METHODS, **dict.fromkeys(_TASK_METHODS, "taskId")}
"""The param that goes into `Mcp-Name`, by method. The tasks extension defines those of tasks, not the SDK."""


async def run_bridge(endpoint: str, *, api_key: str | None) -> None:
    """Forward messages until standard input ends, then responses for up to `LAST_RESPONSES_SECONDS`."""
    default_headers = {"user-agent": f"ringback-mcp/{__version__}", "accept-encoding": "identity"}
    if api_key:
        default_headers["authorization"] = f"Bearer {api_key}"
    # No read timeout: a tool may be silent for as long as it runs, and the client decides when to stop waiting.
    timeout = httpx2.Timeout(connect=CONNECT_SECONDS, write=WRITE_SECONDS, read=None, pool=None)
    async with AsyncExitStack() as stack:
        from_client, to_client = await stack.enter_async_context(stdio_server())
        stack.push_async_callback(to_client.aclose)  # the SDK's writer ends when its last sender is closed
        http = await stack.enter_async_context(
            httpx2.AsyncClient(
                transport=JsonRpcErrorTransport(endpoint), headers=default_headers, timeout=timeout, trust_env=False
            )
        )
        from_service, to_service = await stack.enter_async_context(
            streamable_http_client(endpoint, http_client=http, max_sse_event_size=RESPONSE_BYTES_MAX)
        )
        headers, pending = RequestHeaders(), PendingRequests()
        canceller = RequestCanceller(http, endpoint)

        async def forward_responses() -> None:
            async for message in from_service:
                if isinstance(message, SessionMessage):
                    headers.learn_from_response(message.message)
                    await to_client.send(message)
                    pending.remove_answered(message.message)
                    canceller.remove_answered(message.message)

        forwarding = asyncio.create_task(forward_responses())
        try:
            async for message in from_client:
                if isinstance(message, SessionMessage):
                    pending.add_request(message.message)
                    await canceller.cancel_request(message.message)
                    await to_service.send(canceller.add_key(headers.add_headers(message.message)))
                else:
                    await to_client.send(
                        SessionMessage(_json_rpc_error(PARSE_ERROR, "This line is not a JSON-RPC message."))
                    )
            await wait_first(pending.all_answered.wait(), timeout_seconds=LAST_RESPONSES_SECONDS)
        finally:
            forwarding.cancel()
            await asyncio.gather(forwarding, return_exceptions=True)


class PendingRequests:
    """Requests without a response."""

    def __init__(self) -> None:
        self._ids: set[RequestId | None] = set()
        self.all_answered = asyncio.Event()
        self.all_answered.set()

    def add_request(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest):
            self._ids.add(message.id)
            self.all_answered.clear()

    def remove_answered(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._ids.discard(message.id)
        if not self._ids:
            self.all_answered.set()


class RequestHeaders:
    """Computes each message's HTTP headers, from the message and from earlier responses."""

    def __init__(self) -> None:
        self._protocol_version: str | None = None
        self._initialize_id: RequestId | None = None
        self._tools_list_ids: set[RequestId] = set()
        self._header_arguments: dict[str, dict[tuple[str, ...], str]] = {}
        """By tool: the path of each argument that goes into a header, and the header's name."""

    def add_headers(self, message: JSONRPCMessage) -> SessionMessage:
        return SessionMessage(message, metadata=ClientMessageMetadata(headers=self._headers(message)))

    def learn_from_response(self, message: JSONRPCMessage) -> None:
        """Learn from an answer."""
        if not isinstance(message, JSONRPCResponse):
            return
        if message.id == self._initialize_id:
            self._protocol_version = message.result.get("protocolVersion")
        elif message.id in self._tools_list_ids:
            self._tools_list_ids.discard(message.id)
            self._header_arguments |= _header_arguments_by_tool(message.result.get("tools"))

    def _headers(self, message: JSONRPCMessage) -> dict[str, str] | None:
        if isinstance(message, JSONRPCRequest):
            if message.method == "initialize":
                self._initialize_id = message.id
                return None
            if message.method == "tools/list":
                self._tools_list_ids.add(message.id)
        if isinstance(message, JSONRPCRequest | JSONRPCNotification):
            params: dict[str, Any] = message.params or {}
            if (version := _protocol_version(params.get("_meta"))) is not None:
                return self._modern_headers(message.method, params, version)
        return {MCP_PROTOCOL_VERSION_HEADER: self._protocol_version} if self._protocol_version else None

    def _modern_headers(self, method: str, params: Mapping[str, Any], version: str) -> dict[str, str]:
        """The headers of 2026-07-28, where every request names its version."""
        headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: method}
        if isinstance(name := params.get(_NAME_PARAM_BY_METHOD.get(method, "")), str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            if method == "tools/call":
                headers |= mcp_param_headers(self._header_arguments.get(name, {}), params.get("arguments") or {})
        return headers


def _protocol_version(meta: Any) -> str | None:
    version = cast("dict[str, Any]", meta).get(PROTOCOL_VERSION_META_KEY) if isinstance(meta, dict) else None
    return version if isinstance(version, str) else None


def _header_arguments_by_tool(tools: Any) -> dict[str, dict[tuple[str, ...], str]]:
    found: dict[str, dict[tuple[str, ...], str]] = {}
    for tool in cast("list[Any]", tools) if isinstance(tools, list) else []:
        match tool:
            case {"name": str() as name, "inputSchema": schema} if find_invalid_x_mcp_header(schema) is None:
                found[name] = x_mcp_header_map(schema)
            case _:
                pass
    return found


class JsonRpcErrorTransport(httpx2.AsyncBaseTransport):
    """Converts a failed request into a JSON-RPC error that says what to do.

    The SDK's transport (2.3.0) ends when a POST raises, and drops the text of a response that is not JSON-RPC.
    """

    def __init__(self, endpoint: str, inner: httpx2.AsyncBaseTransport | None = None) -> None:
        self._endpoint = endpoint
        self._inner = inner or httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_connections=None))

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "DELETE":
            request.extensions["timeout"] = {
                **request.extensions.get("timeout", {}),
                "read": SESSION_END_TIMEOUT_SECONDS,
            }
        if request.method != "POST":
            return await self._inner.handle_async_request(request)  # the SDK handles their exceptions
        try:
            response = await self._inner.handle_async_request(request)
            if response.status_code == HTTPStatus.NOT_FOUND and SESSION_HEADER in request.headers:
                await response.aclose()
                return _error_response(
                    "Ringback no longer knows this session. Start this server again in your MCP client."
                )
            return await _to_json_rpc_response(response)
        except (httpx2.ConnectError, httpx2.ConnectTimeout):
            return _error_response(
                f"Ringback is unreachable at {self._endpoint}. Start it with 'ringback serve', or set its URL with --url or "
                "RINGBACK_URL."
            )
        except Exception as error:  # noqa: BLE001 - the boundary: an exception here would end every request in progress
            return _error_response(
                f"The connection to Ringback was lost before its response ({type(error).__name__}). A started call "
                "continues: look for it with ringback_list_calls before you call again."
            )


async def _to_json_rpc_response(response: httpx2.Response) -> httpx2.Response:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if response.is_success and kind == "text/event-stream":
        return response
    body = await _read_body(response)
    if response.is_success or kind == "application/json":
        return httpx2.Response(response.status_code, headers=_forwarded_headers(response), content=body)
    return _error_response(
        _problem_detail(body) or f"Ringback responded with HTTP {response.status_code}. Is this its URL?"
    )


async def _read_body(response: httpx2.Response) -> bytes:
    body = bytearray()
    try:
        async for chunk in cast("httpx2.AsyncByteStream", response.stream):
            body += chunk
            if len(body) > RESPONSE_BYTES_MAX:
                raise httpx2.DecodingError("too large")
    finally:
        await response.aclose()
    return bytes(body)


def _forwarded_headers(response: httpx2.Response) -> dict[str, str]:
    return {name: response.headers[name] for name in ("content-type", SESSION_HEADER) if name in response.headers}


def _problem_detail(body: bytes) -> str | None:
    """The detail of the service's problem document."""
    try:
        document = jsontext.loads(body)
    except ValueError:
        return None
    match document:
        case {"detail": str() as detail}:
            return strip_control_characters(detail)[:DETAIL_LENGTH_MAX]
        case _:
            return None


def _error_response(message: str) -> httpx2.Response:
    body = _json_rpc_error(CONNECTION_CLOSED, message).model_dump_json(by_alias=True, exclude_unset=True)
    headers = {"content-type": "application/json"}
    return httpx2.Response(HTTPStatus.SERVICE_UNAVAILABLE, headers=headers, content=body.encode())


def _json_rpc_error(code: int, message: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=code, message=message))
