"""The frames of one events/stream request, in their order.

Over HTTP the response is not read on while `QUEUED_FRAMES_MAX` frames wait (`paced_streams`), so none is lost. Where other
messages follow on the same connection, a stream that is not read fast enough ends, and says so.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from ringback.upstreams.transports.notification_buffer import FRAMES_LOST_METHOD

QUEUED_FRAMES_MAX: Final = 256
"""Frames that wait to be stored: a few pages, which are stored in about a second."""
_UNPACED_FRAMES_MAX: Final = 2 * QUEUED_FRAMES_MAX
"""With more frames, nothing slows the upstream down: the stream ends. Some frames are on their way when the queue is full."""

Frame = tuple[str, Mapping[str, Any]]
"""The method and the params of a notification."""


class EventFrames:
    def __init__(self) -> None:
        self._queue: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._has_ended = False
        self._has_space = asyncio.Event()
        self._has_space.set()
        self.has_overflowed = False
        """Whether frames were lost, because they arrived faster than they were read."""
        self.failure: BaseException | None = None
        """The reason of an abnormal end."""

    async def next_frames(self, *, limit: int) -> list[Frame]:
        """Wait for the next frame, and return it with those that follow at once. Empty after the end of the stream."""
        frames: list[Frame] = []
        while len(frames) < limit and (not frames or not self._queue.empty()):
            frame = await self._queue.get()
            if frame is None:
                self._queue.put_nowait(None)  # for the next call
                break
            frames.append(frame)
        if self._queue.qsize() < QUEUED_FRAMES_MAX:
            self._has_space.set()
        return frames

    async def wait_for_space(self) -> None:
        """Wait until fewer than `QUEUED_FRAMES_MAX` frames are queued, or the stream has ended."""
        await self._has_space.wait()

    def put_notification(self, method: str, params: Mapping[str, Any]) -> None:
        if self._has_ended:
            return
        if method == FRAMES_LOST_METHOD or self._queue.qsize() >= _UNPACED_FRAMES_MAX:
            self.has_overflowed = True
            self.end()
            return
        self._queue.put_nowait((method, params))
        if self._queue.qsize() >= QUEUED_FRAMES_MAX:
            self._has_space.clear()

    def on_request_done(self, request: "asyncio.Task[dict[str, Any]]") -> None:
        if not request.cancelled():
            self.failure = request.exception()
        self.end()

    def end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._queue.put_nowait(None)
            self._has_space.set()
