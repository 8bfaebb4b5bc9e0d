"""The frames of one events/stream request, in their order and without a loss: a stream that is not read fast enough ends."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

QUEUED_FRAMES_MAX: Final = 256
"""Frames that wait to be stored. The stream of a faster upstream ends, and is opened again with the stored cursor."""

Frame = tuple[str, Mapping[str, Any]]
"""The method and the params of a notification."""


class EventFrames:
    def __init__(self) -> None:
        self._queue: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._has_ended = False
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
        return frames

    def put_notification(self, method: str, params: Mapping[str, Any]) -> None:
        if self._queue.qsize() >= QUEUED_FRAMES_MAX:
            self.end()
        if not self._has_ended:
            self._queue.put_nowait((method, params))

    def on_request_done(self, streaming: "asyncio.Task[dict[str, Any]]") -> None:
        if not streaming.cancelled():
            self.failure = streaming.exception()
        self.end()

    def end(self) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._queue.put_nowait(None)
