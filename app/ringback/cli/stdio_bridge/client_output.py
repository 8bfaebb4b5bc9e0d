"""Messages to the client."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
from mcp_types import JSONRPCMessage, JSONRPCNotification, JSONRPCRequest

from ringback.cli.stdio_bridge.server_requests import CANCELLED_METHOD, ServerRequests


class ClientOutput:
    def __init__(self, send: Callable[[JSONRPCMessage], Awaitable[None]]) -> None:
        self._send = send
        self.server_requests = ServerRequests()

    async def send(self, message: JSONRPCMessage) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the client has gone
            await self._send(message)

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        rest = {} if params is None else {"params": params}
        await self.send(JSONRPCNotification(jsonrpc="2.0", method=method, **rest))

    async def forward(self, message: JSONRPCMessage, *, stream: object) -> None:
        """Forward a message that came on this stream of the service."""
        if isinstance(message, JSONRPCRequest):
            message = self.server_requests.expose_request(message, stream=stream)
        elif isinstance(message, JSONRPCNotification) and message.method == CANCELLED_METHOD:
            cancellation = self.server_requests.expose_cancellation(message, stream=stream)
            if cancellation is None:
                return
            message = cancellation
        await self.send(message)

    async def withdraw_requests(self, stream: object) -> None:
        """Cancel the open requests of a stream that has ended."""
        for cancellation in self.server_requests.withdraw_requests(stream):
            await self.send(cancellation)
