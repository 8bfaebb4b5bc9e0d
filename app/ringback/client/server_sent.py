"""Server-sent events, taken apart (the HTML standard, §9.2.6): bytes in, frames out."""

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Final

from ringback.client.problems import UnexpectedAnswer

RETRY_SECONDS: Final = 2.0
"""Until the service says how long to wait before coming back."""
FRAME_BYTES_MAX: Final = 1024 * 1024
"""Far more than an event has; what goes on longer is no stream of events."""
_DIGITS_MAX: Final = 9


@dataclass(frozen=True, slots=True)
class Frame:
    name: str
    data: str


class Frames:
    """One stream. The bytes may come in any pieces."""

    def __init__(self) -> None:
        self.retry_seconds = RETRY_SECONDS
        self._rest = b""
        self._name = ""
        self._data: list[str] = []

    async def read(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[Frame]:
        async for chunk in chunks:
            for frame in self.feed(chunk):
                yield frame

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that these bytes complete. Comments are heard and dropped: they only say that the stream lives."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > FRAME_BYTES_MAX:
            raise UnexpectedAnswer("The stream holds a line without an end. Is this the URL of a Ringback?")
        for line in lines:
            text = line.removesuffix(b"\r").decode(errors="replace")
            if text:
                self._take(text)
            elif self._data:
                yield Frame(self._name or "message", "\n".join(self._data))
            if not text:
                self._name, self._data = "", []

    def _take(self, line: str) -> None:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match field:
            case "event":
                self._name = value
            case "data":
                self._data.append(value)
            case "retry" if value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX:
                self.retry_seconds = int(value) / 1000
            case _:
                pass
