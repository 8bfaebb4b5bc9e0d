"""Server-sent events of an httpx response, read by httpx-sse, with limits on the length of a line and of an event."""

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
EVENT_BYTES_MAX: Final = 2 * LINE_BYTES_MAX
"""An event of the service has one `data` line and two short ones. httpx-sse itself keeps any number of `data` lines."""
EVENT_ENDS: Final = (b"\n\n", b"\r\r", b"\r\n\r\n")
"""An empty line, in each of the line ends of the HTML standard (§9.2.6)."""
EVENT_END_BYTES_MAX: Final = max(map(len, EVENT_ENDS))


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    name: str
    data: str
    """Empty if the frame only sets the id."""
    id: str = ""
    """The last id of the stream, for a reconnect; empty before the first."""


class ServerSentEvents:
    """The events of one response. `retry_seconds` is the pause that the service last requested."""

    def __init__(self, response: httpx.Response) -> None:
        if isinstance(response.stream, httpx.AsyncByteStream):
            response.stream = BoundedEvents(response.stream)
        self._source = EventSource(response)
        self.retry_seconds = RECONNECT_SECONDS_DEFAULT

    async def iterate_events(self) -> AsyncGenerator[ServerSentEvent]:
        """Events that have data, and frames that set a new id. Raises `UnexpectedAnswer` if one is too long."""
        last_id = ""
        async with aclosing(self._source.aiter_sse()) as events:
            async for event in events:
                if event.retry is not None:
                    self.retry_seconds = min(RECONNECT_SECONDS_LIMIT, max(0.0, event.retry / 1000))
                if event.data or event.id != last_id:
                    last_id = event.id
                    yield ServerSentEvent(event.event, event.data, event.id)


class BoundedEvents(httpx.AsyncByteStream):
    """A byte stream that raises `UnexpectedAnswer` after too many bytes without a line end, or without an empty line."""

    def __init__(self, stream: httpx.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        line_bytes = event_bytes = 0
        tail = b""
        async for chunk in self._stream:
            line_end = max(chunk.rfind(b"\n"), chunk.rfind(b"\r"))
            line_bytes = len(chunk) - line_end - 1 + (line_bytes if line_end < 0 else 0)
            text = tail + chunk
            event_end = _find_last_event_end(text)
            event_bytes = len(text) - event_end if event_end else event_bytes + len(chunk)
            tail = text[-EVENT_END_BYTES_MAX + 1 :]
            if line_bytes > LINE_BYTES_MAX or event_bytes > EVENT_BYTES_MAX:
                raise UnexpectedAnswer("The stream has an event that is too long. Is this the URL of a Ringback?")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _find_last_event_end(text: bytes) -> int:
    """The position after the last empty line; 0 if there is none."""
    return max(text.rfind(end) + len(end) if end in text else 0 for end in EVENT_ENDS)
