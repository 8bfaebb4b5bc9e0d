"""What upstreams tell about running calls, for whoever waits for one just now: in this process, bounded, and kept nowhere."""

import asyncio
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final, get_args

from mcp_types import LoggingLevel

from ringback.domain import jsontext
from ringback.domain.call import Progress
from ringback.domain.ids import CallId
from ringback.domain.meta import without_reserved_meta
from ringback.domain.upstreams import Told

WAITING_MAX: Final = 256
"""Notifications that wait for one listener: a client that reads hears all, and one that does not costs no more than this."""
MESSAGE_BYTES_MAX: Final = 64 * 1024
"""A message is a line for a log, perhaps with a traceback; a larger one is dropped."""
LEVELS: Final[tuple[str, ...]] = get_args(LoggingLevel)
"""By rising severity (RFC 5424), as the SDK declares them."""
PROGRESS: Final = "notifications/progress"
MESSAGE: Final = "notifications/message"


class LiveHub:
    """Implements `domain.upstreams.Live`."""

    def __init__(self) -> None:
        self._streams: dict[CallId, set[LiveStream]] = {}

    @contextmanager
    def listen(self, call_id: CallId, *, log_level: str | None = None) -> "Generator[LiveStream]":
        stream = LiveStream(None if log_level is None else LEVELS.index(log_level))
        self._streams.setdefault(call_id, set()).add(stream)
        try:
            yield stream
        finally:
            streams = self._streams[call_id]
            streams.discard(stream)
            if not streams:
                del self._streams[call_id]

    def log_level(self, call_id: CallId) -> str | None:
        """The least severe level that somebody who listens asked for; None when nobody did."""
        levels = [stream.log_level for stream in self._streams.get(call_id, ()) if stream.log_level is not None]
        return LEVELS[min(levels)] if levels else None

    def progress(self, call_id: CallId, progress: Progress) -> None:
        params = {"progress": progress.progress, "total": progress.total, "message": progress.message}
        told = Told(method=PROGRESS, params={key: value for key, value in params.items() if value is not None})
        for stream in self._streams.get(call_id, ()):
            stream.take(told)

    def logged(self, call_id: CallId, params: Mapping[str, Any]) -> None:
        """Take the parameters of a notifications/message that surely belongs to this call."""
        level = params.get("level")
        if level not in LEVELS or not _is_small(params):
            return
        told = Told(method=MESSAGE, params=without_reserved_meta(params))
        for stream in self._streams.get(call_id, ()):
            if stream.log_level is not None and LEVELS.index(level) >= stream.log_level:
                stream.take(told)


def _is_small(params: Mapping[str, Any]) -> bool:
    try:
        return len(jsontext.dumps(params)) <= MESSAGE_BYTES_MAX
    except TypeError:
        return False


class LiveStream(AsyncIterator[Told]):
    """For one listener. It never ends by itself."""

    def __init__(self, log_level: int | None) -> None:
        self.log_level = log_level
        """The place in `LEVELS` from which on messages are wanted; None: no messages."""
        self._waiting: asyncio.Queue[Told] = asyncio.Queue()

    def take(self, told: Told) -> None:
        if self._waiting.qsize() >= WAITING_MAX:
            self._waiting.get_nowait()
        self._waiting.put_nowait(told)

    async def __anext__(self) -> Told:
        return await self._waiting.get()
