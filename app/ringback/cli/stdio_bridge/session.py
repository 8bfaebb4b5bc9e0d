"""A legacy session, as the bridge holds it for its client.

When the service does not know the session any more, the bridge begins a new one: the client's `initialize` with the protocol
version that was agreed upon, `notifications/initialized`, and then every subscription and the log level.
"""

import asyncio
from contextlib import suppress
from itertools import count
from typing import Any, Final

import httpx2
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp_types import CONNECTION_CLOSED, ErrorData, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from ringback.cli.stdio_bridge.endpoint import ServiceEndpoint
from ringback.cli.stdio_bridge.request_headers import RequestHeaders
from ringback.cli.stdio_bridge.responses import NoResponse, RequestRefused, SessionUnknown

INITIALIZED: Final = JSONRPCNotification(jsonrpc="2.0", method="notifications/initialized")


class BridgedSession:
    def __init__(self, endpoint: ServiceEndpoint, headers: RequestHeaders) -> None:
        self._endpoint = endpoint
        self._headers = headers
        self.id: str | None = None
        self.subscriptions: dict[str, JSONRPCRequest] = {}
        """The client's resources/subscribe, by URI."""
        self._initialize: JSONRPCRequest | None = None
        self._capabilities: dict[str, Any] = {}
        """Of the service."""
        self._log_level: JSONRPCRequest | None = None
        self._left_ids: list[str] = []
        """Of the sessions that the client has left by another `initialize`."""
        self._own_ids = count(1)
        self._lock = asyncio.Lock()

    def get_headers(self) -> dict[str, str]:
        """The headers of a request in the session."""
        return self._headers.get_session_headers() | self._id_header(self.id)

    def learn_from_response(self, request: JSONRPCRequest, response: JSONRPCResponse, session_id: str | None) -> None:
        """Learn what a new session needs."""
        params = request.params or {}
        match request.method:
            case "initialize":
                version = response.result.get("protocolVersion")
                self._initialize = request.model_copy(update={"params": {**params, "protocolVersion": version}})
                self._capabilities = response.result.get("capabilities") or {}
                self._leave_session()
                self.id = session_id
            case "resources/subscribe":
                self.subscriptions[str(params.get("uri"))] = request
            case "resources/unsubscribe":
                self.subscriptions.pop(str(params.get("uri")), None)
            case "logging/setLevel":
                self._log_level = request
            case _:
                pass

    def reports_changes_of(self, kind: str) -> bool:
        """Whether the service has declared notifications of changed lists of this kind."""
        match self._capabilities.get(kind):
            case {"listChanged": True}:
                return True
            case _:
                return False

    def create_request_id(self) -> str:
        """An id that neither the client nor an earlier request of the bridge uses."""
        return f"ringback-mcp-{next(self._own_ids)}"

    async def replace(self, lost_id: str | None) -> None:
        """Begin a new session if `lost_id` is still the current one; raises `NoResponse` or `RequestRefused`."""
        async with self._lock:
            if self._initialize is None or self.id != lost_id:
                return
            try:
                self.id = await self._begin(self._initialize)
            except SessionUnknown:
                raise NoResponse("Ringback does not know a session that it has just begun.") from None

    async def end(self) -> None:
        if self.id is not None:
            await self._end(self.id)

    async def end_left_sessions(self) -> bool:
        """End the sessions that the client has left; False if there is none."""
        left_ids, self._left_ids = self._left_ids, []
        for session_id in left_ids:
            await self._end(session_id)
        return bool(left_ids)

    def _leave_session(self) -> None:
        if self.id is not None:
            self._left_ids.append(self.id)
        self.subscriptions.clear()
        self._log_level = None

    async def _end(self, session_id: str) -> None:
        with suppress(httpx2.HTTPError):
            await self._endpoint.end_session(self._headers.get_session_headers() | self._id_header(session_id))

    async def _begin(self, initialize: JSONRPCRequest) -> str | None:
        request = self._with_own_id(initialize)
        response, session_id = await self._endpoint.request(request, {})
        self._require_same_version(initialize, response)
        headers = self._headers.get_session_headers() | self._id_header(session_id)
        async with self._endpoint.post(INITIALIZED, headers):
            pass
        for each in [*self.subscriptions.values(), *filter(None, [self._log_level])]:
            with suppress(RequestRefused):  # such as a resource that has expired since
                await self._endpoint.request(self._with_own_id(each), headers)
        return session_id

    def _with_own_id(self, request: JSONRPCRequest) -> JSONRPCRequest:
        return request.model_copy(update={"id": self.create_request_id()})

    def _require_same_version(self, initialize: JSONRPCRequest, response: JSONRPCResponse) -> None:
        agreed, version = (initialize.params or {}).get("protocolVersion"), response.result.get("protocolVersion")
        if version != agreed:
            message = (
                f"Ringback has restarted and no longer speaks MCP {agreed}, but {version}. Start this server again in your "
                "MCP client."
            )
            raise RequestRefused(ErrorData(code=CONNECTION_CLOSED, message=message))

    def _id_header(self, session_id: str | None) -> dict[str, str]:
        return {} if session_id is None else {MCP_SESSION_ID_HEADER: session_id}
