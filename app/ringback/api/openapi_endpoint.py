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

CHUNK_BYTES: Final = 32 * 1024
"""Half of what a connection may hold unwritten before its writer waits (asyncio: 64 KiB)."""


class OpenApiEndpoint:
    """The endpoint. `make` gives the document, and runs in a thread."""

    def __init__(self, build_document: Callable[[], dict[str, Any]]) -> None:
        self._build_document = build_document
        self._build_task: asyncio.Task[bytes] | None = None

    async def __call__(self, request: Request) -> Response:  # noqa: ARG002 - Starlette's signature
        if self._build_task is None or (self._build_task.done() and self._build_task.exception() is not None):
            self._build_task = asyncio.create_task(asyncio.to_thread(self._serialise))
        document = await asyncio.shield(self._build_task)
        headers = {"content-length": str(len(document))}
        return StreamingResponse(_iterate_chunks(document), media_type="application/json", headers=headers)

    def _serialise(self) -> bytes:
        return orjson.dumps(self._build_document())


async def _iterate_chunks(document: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(document), CHUNK_BYTES):
        yield document[start : start + CHUNK_BYTES]
