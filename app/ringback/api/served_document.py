"""`GET /openapi.json`: made once, beside the event loop, and sent in pieces.

Anybody may ask for it, without a key. Making it takes a second, and making it JSON again for each request took milliseconds,
so a few hundred requests at once stopped the service (scripts/soak found it). In one piece, each reader who does not read
would also hold 300 KB of memory.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

PIECE_BYTES: Final = 32 * 1024
"""Half of what a connection may hold unwritten before its writer waits (asyncio: 64 KiB)."""


class ServedDocument:
    """The endpoint. `make` gives the document, and runs in a thread."""

    def __init__(self, make: Callable[[], dict[str, Any]]) -> None:
        self._make = make
        self._making: asyncio.Task[bytes] | None = None

    async def __call__(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        if self._making is None or (self._making.done() and self._making.exception() is not None):
            self._making = asyncio.create_task(asyncio.to_thread(self._serialise))
        document = await asyncio.shield(self._making)
        headers = {"content-length": str(len(document))}
        return StreamingResponse(_pieces(document), media_type="application/json", headers=headers)

    def _serialise(self) -> bytes:
        return orjson.dumps(self._make())


async def _pieces(document: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(document), PIECE_BYTES):
        yield document[start : start + PIECE_BYTES]
