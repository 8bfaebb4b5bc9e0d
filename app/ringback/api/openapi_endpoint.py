"""`GET /openapi.json`: built once in a thread, and sent in chunks.

The endpoint needs no key. Building the document takes a second, and serialising it for each request took milliseconds, so a few
hundred concurrent requests stopped the service (found by scripts/soak). Without chunks, each slow client would also hold 300 KB
of memory.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

CHUNK_BYTES: Final = 32 * 1024
"""Half of the write buffer at which asyncio pauses a writer (64 KiB)."""


class OpenApiEndpoint:
    """Serves the document. `build_document` runs in a thread."""

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
