"""Reads a stream with time limits that do not cancel a read."""

import asyncio
from collections.abc import AsyncIterable
from typing import Final

_NOTHING: Final = b""


class ChunkReader:
    def __init__(self, stream: AsyncIterable[bytes]) -> None:
        self._chunks = aiter(stream)
        self._reading: asyncio.Task[bytes | None] | None = None

    async def read_chunk(self, timeout_seconds: float | None) -> bytes | None:
        """The next chunk; empty if none arrives in time, None at the end. What the stream raises is passed on."""
        if timeout_seconds is None and self._reading is None:
            return await anext(self._chunks, None)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        done, _ = await asyncio.wait({self._reading}, timeout=timeout_seconds)
        if not done:
            return _NOTHING
        reading, self._reading = self._reading, None
        return reading.result()

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)

    async def _read(self) -> bytes | None:
        return await anext(self._chunks, None)
