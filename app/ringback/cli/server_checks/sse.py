"""Server-sent events as they stand on the wire, comments included, which a library's reader drops."""

from dataclasses import dataclass
from typing import Final

from ringback.upstreams.transports.line_splitter import LineEnds, LineSplitter, OversizedLine

BUFFER_BYTES_MAX: Final = 4 * 1024 * 1024
"""One event of at most 256 KiB (mcp-events §8) with room; beyond it, the server never ends its line or its event."""


class StreamTooLong(Exception):
    """The server sends more than a check reads. The message says of what."""


@dataclass(frozen=True, slots=True)
class SseFrame:
    """An event's data, or a comment."""

    text: str
    is_comment: bool = False


class SseParser:
    def __init__(self) -> None:
        self._line_ends = LineEnds()
        self._splitter = LineSplitter(BUFFER_BYTES_MAX)
        self._data: list[str] = []
        self._data_length = 0
        """Characters in `_data`, and one for each of its lines, which may be empty."""

    def feed(self, chunk: bytes) -> list[SseFrame]:
        """The frames that this chunk completes."""
        frames: list[SseFrame] = []
        for line in self._splitter.feed(self._line_ends.replace(chunk)):
            if isinstance(line, OversizedLine):
                raise StreamTooLong(f"a line of the stream has more than {BUFFER_BYTES_MAX} bytes")
            frames += self._read_line(line.decode("utf-8", "replace"))
        return frames

    def _read_line(self, line: str) -> list[SseFrame]:
        field, separator, value = line.partition(":")
        if separator and not field:
            return [SseFrame(value.strip(), is_comment=True)]
        if field == "data":
            self._add_data(value.removeprefix(" "))
        if line or not self._data:
            return []
        text, self._data, self._data_length = "\n".join(self._data), [], 0
        return [SseFrame(text)]

    def _add_data(self, text: str) -> None:
        self._data_length += len(text) + 1
        if self._data_length > BUFFER_BYTES_MAX:
            raise StreamTooLong(f"an event of the stream has more than {BUFFER_BYTES_MAX} bytes")
        self._data.append(text)
