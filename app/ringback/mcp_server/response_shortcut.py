"""What the dispatcher of a legacy session writes: a response goes straight to the stream of its request.

    response, no message of its request before it ──▶ the stream of its request
    any other message ──▶ the SDK's router ──▶ the stream of its request, or the session's own

The router is a task behind a stream of its own: a thirtieth of the CPU time of a fast call, and two turns of the event loop
(measured). A response must not overtake a message that is still on its way through it.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from types import TracebackType
from typing import Self

from mcp.shared._stream_protocols import WriteStream
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCResponse

DeliverResponse = Callable[[JSONRPCResponse | JSONRPCError], Awaitable[None]]


class ResponseShortcut:
    """Implements the SDK's `WriteStream`, in front of the router's."""

    def __init__(self, router: WriteStream[SessionMessage], deliveries: MutableMapping[str, DeliverResponse]) -> None:
        self._router = router
        self._deliveries = deliveries
        """By request id, for each open request. The first message of a request removes its entry."""

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            if (deliver := self._deliveries.pop(str(message.id), None)) is not None:
                await deliver(message)
                return
        elif isinstance(item.metadata, ServerMessageMetadata):
            self._deliveries.pop(str(item.metadata.related_request_id), None)
        await self._router.send(item)

    async def aclose(self) -> None:
        await self._router.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.aclose()
