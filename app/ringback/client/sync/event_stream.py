"""EventStream without `await`."""

import threading
from typing import Self

from ringback.client.event_stream import EventStream
from ringback.client.models import Event
from ringback.client.sync.loop_thread import LoopThread


class SyncEventStream:
    """Events after a cursor and then new events without end, in the order of the log. An iterator.

    It reconnects as `EventStream` does, which has the details. `close` it, or use it as a context manager.
    """

    def __init__(self, loop_thread: LoopThread, stream: EventStream) -> None:
        self._loop_thread = loop_thread
        self._stream = stream
        self._turn = threading.Lock()
        self._unreturned: Event | None = None
        """An event that was read. It stays here until it is returned: an interrupt (Ctrl-C) may come between the two."""
        self._cursor_before = stream.cursor
        loop_thread.add_stream(stream)

    @property
    def cursor(self) -> str | None:
        """The place up to which all events have been returned. Another process continues from it."""
        return self._stream.cursor if self._unreturned is None else self._cursor_before

    @property
    def is_truncated(self) -> bool:
        """Whether events after the given cursor were no longer kept, so that this stream did not return them."""
        return self._stream.is_truncated

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        with self._turn:
            event = self._loop_thread.run(self._read_next())
            self._unreturned = None
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """Close the connection, unless the end of the client has closed it. The iteration ends."""
        if not self._loop_thread.is_closed:
            self._loop_thread.run(self._stream.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _read_next(self) -> Event | None:
        if self._unreturned is None:
            self._cursor_before = self._stream.cursor
            self._unreturned = await anext(self._stream, None)
        return self._unreturned
