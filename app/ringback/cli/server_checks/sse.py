"""Server-sent events as they stand on the wire, comments included, which a library's reader drops."""

from dataclasses import dataclass, field
from typing import Final

BUFFER_BYTES_MAX: Final = 4 * 1024 * 1024
"""One event of at most 256 KiB (mcp-events §8) with room; beyond it, the server never ends its line."""


class StreamTooLong(Exception):
    """A line of the stream is longer than `BUFFER_BYTES_MAX`."""


@dataclass(frozen=True, slots=True)
class SseFrame:
    """An event's data, or a comment."""

    text: str
    is_comment: bool = False


@dataclass(slots=True)
class SseParser:
    _buffer: bytes = b""
    _data: list[str] = field(default_factory=list[str])

    def feed(self, chunk: bytes) -> list[SseFrame]:
        """The frames that this chunk completes."""
        *lines, self._buffer = (self._buffer + chunk).replace(b"\r\n", b"\n").split(b"\n")
        if len(self._buffer) > BUFFER_BYTES_MAX:
            raise StreamTooLong
        frames: list[SseFrame] = []
        for line in lines:
            frames += self._read_line(line.decode("utf-8", "replace"))
        return frames

    def _read_line(self, line: str) -> list[SseFrame]:
        if line.startswith(":"):
            return [SseFrame(line[1:].strip(), is_comment=True)]
        if line.startswith("data:"):
            self._data.append(line.removeprefix("data:").removeprefix(" "))
            return []
        if line or not self._data:
            return []
        text, self._data = "\n".join(self._data), []
        return [SseFrame(text)]
