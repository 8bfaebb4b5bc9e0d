"""Server-sent events (the HTML standard, §9.2): pages of the event log as frames of an open stream.

retry: 2000                       how long a browser waits before it reconnects, in milliseconds
id: MTpldmVudHM6NDI               the event's cursor; a client sends it as Last-Event-ID
event: call.finished
data: {"eventId": …}              one line of JSON
: still here                      the heartbeat
"""

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, suppress
from typing import Final

from fastapi.responses import StreamingResponse
from starlette.types import Send

from ringback.domain.errors import StoreUnavailable
from ringback.schemas.events import EventView
from ringback.services.events import EventPage

EVENT_STREAM_MEDIA_TYPE: Final = "text/event-stream"
RETRY_MILLISECONDS: Final = 2000
"""About the duration of a restart."""
HEARTBEAT_FRAME: Final = b": still here\n\n"
TRUNCATED_FRAME: Final = b'event: truncated\ndata: {"truncated":true}\n\n'
"""Events after the client's cursor are missing. The frame has no id, because the client's cursor stays the same."""
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would buffer frames
}


class EventStreamResponse(StreamingResponse):
    """Streams pages of the event log as fast as the client reads, and closes the generator of pages at the end."""

    def __init__(self, first: EventPage, pages: AsyncGenerator[EventPage]) -> None:
        self._pages = pages
        self._frames = _stream_frames(first, pages)
        super().__init__(self._frames, headers=_HEADERS, media_type=EVENT_STREAM_MEDIA_TYPE)

    async def stream_response(self, send: Send) -> None:
        # A client that disconnects during a write leaves both generators open.
        async with aclosing(self._pages), aclosing(self._frames):
            await super().stream_response(send)


async def _stream_frames(first: EventPage, pages: AsyncGenerator[EventPage]) -> AsyncGenerator[bytes]:
    yield b"retry: %d\n\n" % RETRY_MILLISECONDS
    yield b"".join(_page_frames(first))
    with suppress(StoreUnavailable):  # the stream ends, and the client reconnects with its cursor
        async for page in pages:
            yield b"".join(_page_frames(page)) or HEARTBEAT_FRAME


def _page_frames(page: EventPage) -> Iterator[bytes]:
    if page.is_truncated:
        yield TRUNCATED_FRAME
    for event in page.events:
        view = EventView.from_event(event)
        yield f"id: {view.cursor}\nevent: {view.name}\ndata: {view.model_dump_json(by_alias=True)}\n\n".encode()
