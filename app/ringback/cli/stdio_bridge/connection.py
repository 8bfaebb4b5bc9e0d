"""What the messages of one client share: the endpoint, the headers and the session."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, TypeVar

from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from ringback.cli.stdio_bridge.endpoint import ServiceEndpoint
from ringback.cli.stdio_bridge.request_headers import RequestHeaders, read_modern_version
from ringback.cli.stdio_bridge.responses import NoResponse, SessionUnknown
from ringback.cli.stdio_bridge.retries import ReconnectSchedule, RetryLimits
from ringback.cli.stdio_bridge.session import BridgedSession
from ringback.domain.clock import Clock

T = TypeVar("T")

CANCEL_TOOL: Final = "ringback_cancel_call"
_URGENT_TOOLS: Final = frozenset({CANCEL_TOOL, "ringback_answer_call"})

CALLS_MAX: Final = 128
"""Calls on their way at once. Each has a connection, and the service allows an address 256 by default, for all clients of a
machine together."""
URGENT_CALLS_MAX: Final = 16
"""Requests besides these that end or answer a call, to which the service responds at once: they may be what ends the wait of
the others. As many more calls may go on with an answer of 2026-07-28, which wait as other calls do."""


class ServiceConnection:
    def __init__(self, endpoint: ServiceEndpoint, *, clock: Clock, limits: RetryLimits) -> None:
        self.endpoint = endpoint
        self.headers = RequestHeaders()
        self.session = BridgedSession(endpoint, self.headers)
        self.clock = clock
        self._call_permits = asyncio.Semaphore(CALLS_MAX)
        self._urgent_call_permits = asyncio.Semaphore(URGENT_CALLS_MAX)
        self._answered_call_permits = asyncio.Semaphore(URGENT_CALLS_MAX)
        self._limits = limits
        self._started_at = clock.monotonic()

    def find_permits(self, request: JSONRPCRequest) -> AbstractAsyncContextManager[None]:
        """What the request holds while it is on its way."""
        if request.method != "tools/call":
            return nullcontext()
        params = request.params or {}
        if params.get("name") in _URGENT_TOOLS:
            return self._urgent_call_permits
        return self._answered_call_permits if "requestState" in params else self._call_permits

    def create_retries(self, *, is_endless: bool = False) -> ReconnectSchedule:
        limits = None if is_endless else self._limits
        return ReconnectSchedule(self.endpoint, self.clock, limits, bridge_started_at=self._started_at)

    def get_headers(self, message: JSONRPCMessage) -> dict[str, str]:
        if isinstance(message, JSONRPCRequest | JSONRPCNotification) and (
            message.method == "initialize" or read_modern_version(message) is not None
        ):
            return self.headers.get_headers(message)
        return self.session.get_headers()

    async def run_in_session(self, exchange: Callable[[], Awaitable[T]]) -> T:
        """Run the exchange; if the service does not know the session, begin a new one and run it once more.

        Raises `NoResponse` or `RequestRefused`.
        """
        session_id = self.session.id
        try:
            return await exchange()
        except SessionUnknown:
            await self.session.replace(session_id)
        try:
            return await exchange()
        except SessionUnknown:
            raise NoResponse("Ringback does not know a session that it has just begun.") from None

    async def request(
        self,
        request: JSONRPCRequest,
        *,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> JSONRPCResponse:
        """The response to a request of the bridge's own; raises `NoResponse` or `RequestRefused`."""

        async def exchange() -> JSONRPCResponse:
            own_headers = {**(headers or {}), **self.get_headers(request)}
            response, _ = await self.endpoint.request(request, own_headers, query=query)
            return response

        return await self.run_in_session(exchange)

    async def post(self, message: JSONRPCMessage) -> None:
        """Send a message that has no response; raises `NoResponse` or `RequestRefused`."""
        await self.run_in_session(lambda: self.post_in_this_session(message))

    async def post_in_this_session(self, message: JSONRPCMessage) -> None:
        """The same for a message that belongs to this session and to no later one; also raises `SessionUnknown`."""
        async with self.endpoint.post(message, self.get_headers(message)):
            pass
