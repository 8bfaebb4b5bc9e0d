"""The response to one request over HTTP. It is closed some time after its caller has stopped waiting for it.

The SDK (2.3.0) reads the response to a legacy request to its end, also after the request was cancelled, and reads on with GET
after a stream that breaks off. A server that sends no response, or notifications without end, would keep a connection for each
cancelled request.

    dispatcher   `awaiting_response`   in the context of the caller, which the tasks of the SDK inherit that send its request
    transport    `get_open_response`   at the POST, and at each GET with which the SDK reads on
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import anyio
from mcp_types import RequestId

LATE_RESPONSE_SECONDS: Final = 60.0
"""For the response to a request that no caller waits for. Servers on the SDK for Python respond to a cancelled request, which
shows that its tool has ended (`elicitation_router`)."""
UNAWAITED_MAX: Final = 8
"""Such responses of one session. With more, the oldest is closed."""
CloseResponse = Callable[[], Awaitable[None]]


class OpenResponse:
    """One connection after another may carry it; `attach` and `detach` say which."""

    def __init__(self, request_id: RequestId | None) -> None:
        self.request_id = request_id
        """None if the SDK does not send the request, and so never reads on with GET."""
        self._close_connection: CloseResponse | None = None
        self._closes_at: float | None = None
        """Loop time; None while the caller waits."""
        self._closing: asyncio.Future[None] | None = None

    @property
    def is_closed(self) -> bool:
        return self._closes_at is not None and asyncio.get_running_loop().time() >= self._closes_at

    def close_after(self, seconds: float) -> None:
        """Can be repeated with a shorter time."""
        self._closes_at = asyncio.get_running_loop().time() + seconds
        self._schedule_close(self._closes_at)

    def attach(self, close_connection: CloseResponse) -> None:
        """A connection that is read from now on, and how it is closed."""
        self._close_connection = close_connection
        if self._closes_at is not None:
            self._schedule_close(self._closes_at)

    def detach(self, close_connection: CloseResponse) -> None:
        """Forget this connection, unless another one was attached."""
        if self._close_connection == close_connection:
            self._close_connection = None

    @contextmanager
    def closing_with(self, scope: anyio.CancelScope) -> Generator[None]:
        """Cancel the scope, in which the begin of the response is awaited, in the place of closing a connection."""

        async def cancel() -> None:
            scope.cancel()

        self.attach(cancel)
        try:
            yield
        finally:
            self.detach(cancel)

    def _schedule_close(self, at: float) -> None:
        if self._close_connection is not None:
            asyncio.get_running_loop().call_at(at, self._close)

    def _close(self) -> None:
        close, self._close_connection = self._close_connection, None
        if close is not None:
            self._closing = asyncio.ensure_future(close())


_RESPONSE: Final[ContextVar[OpenResponse | None]] = ContextVar("ringback_open_response", default=None)


def get_open_response() -> OpenResponse | None:
    """The response to the request that is sent in this context."""
    return _RESPONSE.get()


class UnawaitedResponses:
    """The responses of one session that no caller waits for."""

    def __init__(self) -> None:
        self._responses = deque[OpenResponse]()

    @contextmanager
    def awaiting_response(self, request_id: RequestId | None = None) -> Generator[None]:
        """Requests of this block have one response, for which a cancelled caller waits no more."""
        response = OpenResponse(request_id)
        token = _RESPONSE.set(response)
        try:
            yield
        except asyncio.CancelledError:
            self._add(response)
            raise
        finally:
            _RESPONSE.reset(token)

    def _add(self, response: OpenResponse) -> None:
        response.close_after(LATE_RESPONSE_SECONDS)
        self._responses.append(response)
        if len(self._responses) > UNAWAITED_MAX:
            self._responses.popleft().close_after(0.0)
