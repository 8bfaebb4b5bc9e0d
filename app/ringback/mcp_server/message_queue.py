"""Messages from several tasks to one, for the SDK's transport of a legacy session and its dispatcher.

They use memory streams of anyio, which let all other tasks run at each send and at each receive, and describe the receiving
task: the two of one request take a thirtieth of the CPU time of a fast call (measured).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, copy_context
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification, JSONRPCRequest

T = TypeVar("T")

_DISPATCHED: Final = JSONRPCNotification(jsonrpc="2.0", method="ringback/dispatched")
"""In the place of a message that has been dispatched."""


class MessageQueue(Generic[T]):
    """Both ends of a stream, as the SDK's `ReadStream` and `WriteStream`. Its end comes after the messages that wait."""

    def __init__(self, *, waiting_max: int, on_handled: Callable[[T], None] | None = None) -> None:
        """`on_handled` gets each message when the receiver asks for the next one."""
        self._waiting_max = waiting_max
        self._on_handled = on_handled
        self._received: T | None = None
        self._waiting: deque[tuple[Context, T]] = deque()
        self._turns = asyncio.Lock()
        """Of the senders, in their order: a cancellation must not overtake its request while the stream is full."""
        self._has_arrived, self._was_taken = asyncio.Event(), asyncio.Event()
        self._is_closed = False
        self.last_context: Context | None = None
        """The context in which the message that was received last was sent: the SDK handles the message in it."""

    async def send(self, message: T, /) -> None:
        """Wait while `waiting_max` messages wait. The error for a closed stream is that of anyio's streams."""
        async with self._turns:
            while len(self._waiting) >= self._waiting_max and not self._is_closed:
                self._was_taken.clear()
                await self._was_taken.wait()
            if self._is_closed:
                raise anyio.ClosedResourceError
            self._waiting.append((copy_context(), message))
        self._has_arrived.set()

    async def receive(self) -> T:
        """The next message. The error at the end of a closed stream is that of anyio's streams."""
        self._finish_received()
        while not self._waiting:
            if self._is_closed:
                raise anyio.EndOfStream
            self._has_arrived.clear()
            await self._has_arrived.wait()
        self.last_context, message = self._waiting.popleft()
        self._was_taken.set()
        if self._on_handled is not None:
            self._received = message
        return message

    def _finish_received(self) -> None:
        received, self._received = self._received, None
        if received is not None and self._on_handled is not None:
            self._on_handled(received)

    def close(self) -> None:
        self._is_closed = True
        self._has_arrived.set()
        self._was_taken.set()

    async def aclose(self) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        self.close()


class IncomingQueue(MessageQueue[SessionMessage | Exception]):
    """The messages of a legacy session on their way to the SDK's dispatcher.

    The dispatcher holds a message until the session's next one comes. A message may be as large as a request may be, and a
    principal has a thousand idle sessions, so a message that has been dispatched is emptied.

    The SDK responds to a notification with 202 before it sends it here. If the session has ended meanwhile, the notification is
    dropped: an error would be a second response on the connection.
    """

    def __init__(self) -> None:
        super().__init__(waiting_max=1, on_handled=_empty_message)

    async def send(self, message: SessionMessage | Exception, /) -> None:
        """As in `MessageQueue`, but only a request for an ended session is an error."""
        try:
            await super().send(message)
        except anyio.ClosedResourceError:
            if isinstance(message, SessionMessage) and isinstance(message.message, JSONRPCRequest):
                raise


def _empty_message(item: SessionMessage | Exception) -> None:
    if isinstance(item, SessionMessage):
        item.message, item.metadata = _DISPATCHED, None
