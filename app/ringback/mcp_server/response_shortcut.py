"""What the dispatcher of a legacy session writes: a response goes straight to the stream of its request.

    response, no message of its request before it ──▶ the stream of its request
    any other message ──▶ the SDK's router ──▶ the stream of its request, or the session's own
    message of a lost request whose id a later one has ──▶ dropped: it would go to the stream of that one

The router is a task behind a stream of its own: a thirtieth of the CPU time of a fast call, and two turns of the event loop
(measured). A response must not overtake a message that is still on its way through it.
"""

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Final, Self

from mcp.shared._stream_protocols import WriteStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCResponse, RequestId

NO_MESSAGE: Final = SessionMessage(
    JSONRPCNotification(jsonrpc="2.0", method="ringback/no-message"),
    metadata=ServerMessageMetadata(related_request_id=f"no-request-{secrets.token_hex(16)}"),
)
"""The router drops it, because there is no such request. It holds its last message until the next one comes: an idle session
would keep a large result."""

DeliverResponse = Callable[[JSONRPCResponse | JSONRPCError], Awaitable[None]]


class ResponseShortcut:
    """Implements the SDK's `WriteStream`, in front of the router's."""

    def __init__(
        self,
        router: WriteStream[SessionMessage],
        deliveries: MutableMapping[str, DeliverResponse],
        *,
        is_replaced: Callable[[RequestId], bool],
    ) -> None:
        """`is_replaced` says whether the stream of this id is that of a later request than the one that sends now."""
        self._router = router
        self._deliveries = deliveries
        """By request id, for each open request. The first message of a request removes its entry."""
        self._is_replaced = is_replaced

    async def send(self, item: SessionMessage, /) -> None:
        message, request_id = item.message, _find_request_id(item)
        if request_id is not None:
            if self._is_replaced(request_id):
                return
            deliver = self._deliveries.pop(str(request_id), None)
            if deliver is not None and isinstance(message, JSONRPCResponse | JSONRPCError):
                await deliver(message)
                return
        await self._router.send(item)
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            await self._router.send(NO_MESSAGE)

    async def aclose(self) -> None:
        await self._router.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()


def _find_request_id(item: SessionMessage) -> RequestId | None:
    """The request that the message belongs to; None for one outside requests."""
    if isinstance(item.message, JSONRPCResponse | JSONRPCError):
        return item.message.id
    return item.metadata.related_request_id if isinstance(item.metadata, ServerMessageMetadata) else None
