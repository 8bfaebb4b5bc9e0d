"""Splits bytes into lines, in linear time and with at most one bounded line in memory.

Lines of a child end with LF or CRLF. Those of server-sent events also end with CR: `LineEnds` first makes each of them LF.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

HEAD_BYTES: Final = 64 * 1024
"""The parts kept of an oversized line. The id of a response stands before or after its result, so in one of them."""
TAIL_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class OversizedLine:
    """A line above the limit. It is returned twice: when it exceeds the limit (`head`), and at its end (`tail`)."""

    head: bytes = b""
    tail: bytes = b""

    @property
    def has_ended(self) -> bool:
        return not self.head


class LineEnds:
    """Replaces CR and CRLF by LF, in a stream whose chunks may end anywhere."""

    def __init__(self) -> None:
        self._ends_with_cr = False

    def replace(self, chunk: bytes) -> bytes:
        """The chunk with LF after each of its lines. A CR at its end ends its line at once: its LF may arrive much later."""
        if self._ends_with_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._ends_with_cr = False
        if b"\r" not in chunk:
            return chunk
        self._ends_with_cr = chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


class LineSplitter:
    def __init__(self, limit: int) -> None:
        """`limit` is in bytes, without the newline."""
        self._limit = limit
        self._line = bytearray()
        self._skipping = False

    def feed(self, chunk: bytes) -> Iterator[bytes | OversizedLine]:
        """Yield the lines that end in this chunk, without newlines. The rest waits for the next chunk."""
        start = 0
        while (end := chunk.find(b"\n", start)) >= 0:
            yield from self._append_piece(chunk[start:end])
            yield self._finish_line()
            start = end + 1
        if start < len(chunk):
            yield from self._append_piece(chunk[start:])

    def take_rest(self) -> bytes:
        """What has come after the last newline; empty if that is above the limit."""
        line = self._finish_line()
        return b"" if isinstance(line, OversizedLine) else line

    def _append_piece(self, piece: bytes) -> Iterator[OversizedLine]:
        if not self._skipping and len(self._line) + len(piece) > self._limit:
            self._skipping = True
            head = bytes(self._line[:HEAD_BYTES])
            yield OversizedLine(head=head + piece[: HEAD_BYTES - len(head)])
            self._line = self._line[-TAIL_BYTES:]
        self._line += piece if not self._skipping else piece[-TAIL_BYTES:]
        if self._skipping:
            del self._line[:-TAIL_BYTES]

    def _finish_line(self) -> bytes | OversizedLine:
        line, self._line = bytes(self._line), bytearray()
        skipped, self._skipping = self._skipping, False
        return OversizedLine(tail=line) if skipped else line
