"""Server-sent events as they stand on the wire, comments included, which a library's reader drops."""

from dataclasses import dataclass, field
from typing import Final

BUFFER_BYTES_MAX: Final = 4 * 1024 * 1024
"""One event of at most 256 KiB (mcp-events §8) with room; beyond it, the server never ends its line or its event."""


class StreamTooLong(Exception):
    """The server sends more than a check reads. The message says of what."""


@dataclass(frozen=True, slots=True)
class SseFrame:
    """An event's data, or a comment."""

    text: str
    is_comment: bool = False


@dataclass(slots=True)
class SseParser:
    _buffer: bytes = b""
    _data: list[str] = field(default_factory=list[str])
    _data_length: int = 0
    """Characters in `_data`, and one for each of its lines, which may be empty."""

    def feed(self, chunk: bytes) -> list[SseFrame]:
        """The frames that this chunk completes."""
        *lines, self._buffer = (self._buffer + chunk).replace(b"\r\n", b"\n").split(b"\n")
        if len(self._buffer) > BUFFER_BYTES_MAX:
            raise StreamTooLong(f"a line of the stream has more than {BUFFER_BYTES_MAX} bytes")
        frames: list[SseFrame] = []
        for line in lines:
            frames += self._read_line(line.decode("utf-8", "replace"))
        return frames

    def _read_line(self, line: str) -> list[SseFrame]:
        if line.startswith(":"):
            return [SseFrame(line[1:].strip(), is_comment=True)]
        if line.startswith("data:"):
            self._add_data(line.removeprefix("data:").removeprefix(" "))
            return []
        if line or not self._data:
            return []
        text, self._data, self._data_length = "\n".join(self._data), [], 0
        return [SseFrame(text)]

    def _add_data(self, text: str) -> None:
        self._data_length += len(text) + 1
        if self._data_length > BUFFER_BYTES_MAX:
            raise StreamTooLong(f"an event of the stream has more than {BUFFER_BYTES_MAX} bytes")
        self._data.append(text)
