"""Server-sent events of an httpx response, read by httpx-sse, with a limit on the length of a line."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

import httpx
from httpx_sse import EventSource

from ringback.client.problems import UnexpectedAnswer

RECONNECT_SECONDS_DEFAULT: Final = 2.0
"""The pause before a reconnect, until the service sends a `retry` field."""
RECONNECT_SECONDS_LIMIT: Final = 3600.0
"""The longest pause that a `retry` field can ask for."""
LINE_BYTES_MAX: Final = 1024 * 1024
"""More than the service's largest event. httpx-sse itself buffers lines of any length."""


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    name: str
    data: str


class EventStream:
    """The events of one response. `retry_seconds` is the pause that the service last requested."""

    def __init__(self, response: httpx.Response) -> None:
        if isinstance(response.stream, httpx.AsyncByteStream):
            response.stream = BoundedLines(response.stream)
        self._source = EventSource(response)
        self.retry_seconds = RECONNECT_SECONDS_DEFAULT

    async def iterate_events(self) -> AsyncGenerator[ServerSentEvent]:
        """Events that have data. Raises `UnexpectedAnswer` if a line is longer than `LINE_BYTES_MAX`."""
        async with aclosing(self._source.aiter_sse()) as events:
            async for event in events:
                if event.retry is not None:
                    self.retry_seconds = min(RECONNECT_SECONDS_LIMIT, max(0.0, event.retry / 1000))
                if event.data:
                    yield ServerSentEvent(event.event, event.data)


class BoundedLines(httpx.AsyncByteStream):
    """A byte stream that raises `UnexpectedAnswer` after more than `LINE_BYTES_MAX` bytes without a line end."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        unended_bytes = 0
        async for chunk in self._stream:
            line_end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
            unended_bytes = len(chunk) - line_end - 1 + (unended_bytes if line_end < 0 else 0)
            if unended_bytes > LINE_BYTES_MAX:
                raise UnexpectedAnswer("The stream has a line that is too long. Is this the URL of a Ringback?")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
