"""EventStream without `await`."""

from types import TracebackType
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
        loop_thread.add_stream(stream)

    @property
    def cursor(self) -> str | None:
        """The place up to which all events have been returned. Another process continues from it."""
        return self._stream.cursor

    @property
    def is_truncated(self) -> bool:
        """Whether events after the given cursor were no longer kept, so that this stream did not return them."""
        return self._stream.is_truncated

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        event = self._loop_thread.run(self._read_next())
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """Close the connection. The iteration ends."""
        self._loop_thread.run(self._stream.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def _read_next(self) -> Event | None:
        return await anext(self._stream, None)
