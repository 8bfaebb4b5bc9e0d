"""Server-sent events (the HTML standard, §9.2): pages of the log as frames of a stream that stays open.

retry: 2000                       how long a browser waits before it comes back
id: MTpldmVudHM6NDI               the event's cursor; comes back as Last-Event-ID
event: call.finished
data: {"eventId": …}              one line of JSON
: still here                      nothing came for a while
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
"""A restart takes about that long."""
HEARTBEAT_FRAME: Final = b": still here\n\n"
TRUNCATED_FRAME: Final = b'event: truncated\ndata: {"truncated":true}\n\n'
"""Events after the reader's place are no longer kept. It has no id: the reader's place is still where it was."""
_HEADERS: Final = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would gather frames before it passes them on
}


class EventStreamResponse(StreamingResponse):
    """Sends what a follower of the log is given, at the pace at which it is read, and ends the following however it ends."""

    def __init__(self, first: EventPage, pages: AsyncGenerator[EventPage]) -> None:
        self._pages = pages
        self._frames = _stream_frames(first, pages)
        super().__init__(self._frames, headers=_HEADERS, media_type=EVENT_STREAM_MEDIA_TYPE)

    async def stream_response(self, send: Send) -> None:
        # A reader that goes away while it is being written to leaves both generators where they stand.
        async with aclosing(self._pages), aclosing(self._frames):
            await super().stream_response(send)


async def _stream_frames(first: EventPage, pages: AsyncGenerator[EventPage]) -> AsyncGenerator[bytes]:
    yield b"retry: %d\n\n" % RETRY_MILLISECONDS
    yield b"".join(_page_frames(first))
    with suppress(StoreUnavailable):  # the stream ends, and the reader comes back to where it was
        async for page in pages:
            yield b"".join(_page_frames(page)) or HEARTBEAT_FRAME


def _page_frames(page: EventPage) -> Iterator[bytes]:
    if page.is_truncated:
        yield TRUNCATED_FRAME
    for event in page.events:
        view = EventView.from_event(event)
        yield f"id: {view.cursor}\nevent: {view.name}\ndata: {view.model_dump_json(by_alias=True)}\n\n".encode()
