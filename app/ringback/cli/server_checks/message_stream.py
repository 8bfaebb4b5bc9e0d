"""What the server under test sends: the response to a request, and the frames of a stream with the time of each."""

import asyncio
import itertools
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, cast

from ringback.cli.server_checks.sse import SseFrame, StreamTooLong

Json = dict[str, Any]

BODY_LENGTH_MAX: Final = 200
"""Characters of a body that a report quotes."""
FRAMES_MAX: Final = 10_000
"""Events and comments of one stream: a hundred times what a run reads from a correct server."""


def as_object(value: object) -> Json:
    """The value if it is an object; else an empty one."""
    return cast("Json", value) if isinstance(value, dict) else {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The response to one request."""

    status: int
    body: str
    """The beginning, for reports."""
    message: Json | None
    """The JSON-RPC response; None if the body has none."""

    @property
    def result(self) -> Json:
        """The result; empty if there is none."""
        return as_object((self.message or {}).get("result"))

    @property
    def has_result(self) -> bool:
        return self.message is not None and isinstance(self.message.get("result"), dict)

    @property
    def error(self) -> Json:
        """The JSON-RPC error; empty if there is none."""
        return as_object((self.message or {}).get("error"))

    @property
    def code(self) -> int | None:
        return self.error.get("code")

    @property
    def data(self) -> Json:
        """The error's `data`; empty if it is not an object."""
        return as_object(self.error.get("data"))

    def describe(self) -> str:
        if self.error:
            return f"error {self.code}: {str(self.error.get('message'))[:BODY_LENGTH_MAX]}"
        if self.has_result:
            return f"a result: {json.dumps(self.result)[:BODY_LENGTH_MAX]}"
        return f"HTTP {self.status} without a JSON-RPC response: {self.body!r}"


@dataclass(frozen=True, slots=True)
class StreamFrame:
    """One frame of a stream, and when it came (the loop's time, in seconds)."""

    at: float
    comment: str | None = None
    message: Json | None = None

    @property
    def method(self) -> str | None:
        return (self.message or {}).get("method")

    @property
    def params(self) -> Json:
        return as_object((self.message or {}).get("params"))


@dataclass(slots=True)
class MessageStream:
    """The response to a request that stays open, as far as it has arrived."""

    request_id: int | str
    opened_at: float
    frames: list[StreamFrame] = field(default_factory=list[StreamFrame])
    has_ended: bool = False
    ending: str = ""
    """How it ended, for a report: the HTTP response without a JSON-RPC message, or the error."""
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, frame: StreamFrame) -> None:
        if len(self.frames) >= FRAMES_MAX:
            raise StreamTooLong(f"the stream has more than {FRAMES_MAX} events and comments")
        self.frames.append(frame)
        self._changed.set()

    def add_sse_frame(self, frame: SseFrame) -> None:
        """Add a comment or a JSON-RPC message that came now. Any other text is left out."""
        now = asyncio.get_running_loop().time()
        if frame.is_comment:
            self.add(StreamFrame(now, comment=frame.text))
            return
        try:
            message = json.loads(frame.text)
        except (ValueError, RecursionError):
            return
        if isinstance(message, dict):
            self.add(StreamFrame(now, message=cast("Json", message)))

    def end(self, ending: str = "") -> None:
        self.has_ended = True
        self.ending = ending
        self._changed.set()

    async def wait_for(
        self, is_wanted: Callable[[StreamFrame], bool], seconds: float, *, start: int = 0
    ) -> StreamFrame | None:
        """The first such frame from index `start` on; None if none comes within the time or before the end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    self._changed.clear()
                    for frame in itertools.islice(self.frames, start, None):
                        if is_wanted(frame):
                            return frame
                    if self.has_ended:
                        return None
                    start = len(self.frames)
                    await self._changed.wait()
        return None

    async def wait_for_method(self, method: str, seconds: float, *, start: int = 0) -> StreamFrame | None:
        return await self.wait_for(lambda frame: frame.method == method, seconds, start=start)

    async def wait_for_reply(self, seconds: float) -> Reply | None:
        """The JSON-RPC response that ends the stream."""
        frame = await self.wait_for(lambda frame: frame.message is not None and "method" not in frame.message, seconds)
        return None if frame is None else Reply(status=200, body="", message=frame.message)
