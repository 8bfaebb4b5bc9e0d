"""Keeps the stream of a legacy session for messages outside requests (GET) open for as long as the session.

    GET ──▶ event stream ──▶ breaks off ──▶ ends for the SDK, which opens it again
     └────▶ no connection, 5xx, once it was open ──▶ pause ──▶ GET

The SDK (2.3.0) gives the stream up after two errors in the life of a session. A proxy that cuts idle connections every minute,
or a server that restarts and keeps its sessions, would end it in minutes: changes of lists and resources, and questions outside
requests, would then never arrive. A server that has never opened the stream may have none, so its errors are the SDK's.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import Final

import httpx2

from ringback.backoff import Backoff
from ringback.domain.clock import Clock

REOPEN_BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=30.0)
"""The pause before the stream is opened again, after errors in a row."""
STABLE_AFTER_SECONDS: Final = 10.0
"""A stream that lasted this long is no error if it breaks off. Proxies cut idle connections after 30 s or more."""


class UpstreamOwnStream:
    """That of one session."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._was_open = False
        self._failures = 0

    async def open(self, send: Callable[[], Awaitable[httpx2.Response]]) -> httpx2.Response:
        """The response to the GET that `send` sends. It is sent again until the upstream is there, once it has been there."""
        while True:
            if self._failures:
                await self._clock.sleep(REOPEN_BACKOFF.pause_seconds(self._failures))
            try:
                response = await send()
            except httpx2.TransportError:
                if not self._was_open:
                    raise
            else:
                if not self._was_open or response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
                    return response
                await response.aclose()
            self._failures += 1

    def follow(self, events: httpx2.AsyncByteStream) -> httpx2.AsyncByteStream:
        """The events of a stream that was opened. It ends where it breaks off."""
        self._was_open = True
        return _UnbrokenStream(events, self)

    def note_end(self, *, is_broken: bool, opened_at: float) -> None:
        is_failure = is_broken and self.now() - opened_at < STABLE_AFTER_SECONDS
        self._failures = self._failures + 1 if is_failure else 0

    def now(self) -> float:
        return self._clock.monotonic()


class _UnbrokenStream(httpx2.AsyncByteStream):
    def __init__(self, events: httpx2.AsyncByteStream, own_stream: UpstreamOwnStream) -> None:
        self._events = events
        self._own_stream = own_stream
        self._opened_at = own_stream.now()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        is_broken = False
        try:
            async for event in self._events:
                yield event
        except httpx2.TransportError:
            is_broken = True
        self._own_stream.note_end(is_broken=is_broken, opened_at=self._opened_at)

    async def aclose(self) -> None:
        await self._events.aclose()
