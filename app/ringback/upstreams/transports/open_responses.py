"""The responses of one HTTP session that are not complete: they can wait for their readers, and be closed.

The SDK (2.3.0) reads the response to a legacy request to its end, also after the request was cancelled. A server that sends no
response, or that sends notifications without end, would keep a connection for each cancelled request.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Final

import anyio
from mcp.shared.dispatcher import coerce_request_id
from mcp_types import RequestId

CloseResponse = Callable[[], Awaitable[None]]
LATE_RESPONSE_SECONDS: Final = 5.0
"""For the response to a cancelled request. Servers on the SDK for Python send one, which shows that the tool has ended."""


class OpenResponses:
    def __init__(self) -> None:
        self._waits: dict[RequestId, Callable[[], Awaitable[None]]] = {}
        self._closers: dict[RequestId, CloseResponse] = {}
        self._closing = set[asyncio.Future[None]]()

    # -- called by the caller of a request --

    @contextmanager
    def pace(self, request_id: RequestId, wait_for_room: Callable[[], Awaitable[None]]) -> Generator[None]:
        """Await `wait_for_room` before each notification on the response to this request."""
        key = coerce_request_id(request_id)
        self._waits[key] = wait_for_room
        try:
            yield
        finally:
            del self._waits[key]

    def close_later(self, request_id: RequestId) -> None:
        """Close the response to this request after `LATE_RESPONSE_SECONDS`, unless it is complete by then."""
        key = coerce_request_id(request_id)
        if key in self._closers:
            asyncio.get_running_loop().call_later(LATE_RESPONSE_SECONDS, self._close, key)

    def _close(self, key: RequestId) -> None:
        if (close := self._closers.pop(key, None)) is not None:
            closing = asyncio.ensure_future(close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    # -- called by the transport --

    def is_paced(self, request_id: RequestId | None) -> bool:
        return bool(self._waits) and request_id is not None and coerce_request_id(request_id) in self._waits

    async def wait_for_room(self, request_id: RequestId | None) -> None:
        """Return at once for a request that is not paced."""
        if request_id is not None and (wait := self._waits.get(coerce_request_id(request_id))) is not None:
            await wait()

    @contextmanager
    def closing_with(self, request_id: RequestId, scope: anyio.CancelScope) -> Generator[None]:
        """While the response is awaited, `close` cancels the scope."""

        async def cancel() -> None:
            scope.cancel()

        self.add(request_id, cancel)
        try:
            yield
        finally:
            self.remove(request_id, cancel)

    def add(self, request_id: RequestId, close: CloseResponse) -> None:
        """Replaces the earlier way to close this response."""
        self._closers[coerce_request_id(request_id)] = close

    def remove(self, request_id: RequestId, close: CloseResponse) -> None:
        """Remove what `add` has added, unless it was replaced."""
        key = coerce_request_id(request_id)
        if self._closers.get(key) == close:
            del self._closers[key]
