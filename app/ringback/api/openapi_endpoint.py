"""`GET /openapi.json`: built once in a thread, and shared by all its responses.

The endpoint needs no key. Building the document takes a second, and serialising it for each request took milliseconds, so a few
hundred concurrent requests stopped the service (found by scripts/soak). `large_responses` writes it in pieces: a slow client
holds one piece and not 400 KB, and many clients that request it at once delay each turn of the event loop by a few pieces only.
Nothing is reserved for it (`services.limits.unread_responses`), so clients without a key leave that memory to the results of
others.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from ringback.services.limits.unread_responses import find_response_memory


class OpenApiEndpoint:
    """Serves the document. `build_document` runs in a thread."""

    def __init__(self, build_document: Callable[[], dict[str, Any]]) -> None:
        self._build_document = build_document
        self._build_task: asyncio.Task[bytes] | None = None

    async def __call__(self, request: Request) -> Response:
        if self._build_task is None or (self._build_task.done() and self._build_task.exception() is not None):
            self._build_task = asyncio.create_task(asyncio.to_thread(self._serialise))
        document = await asyncio.shield(self._build_task)
        find_response_memory(request.scope.setdefault("state", {})).use_document(document)
        return Response(document, media_type="application/json")

    def _serialise(self) -> bytes:
        return orjson.dumps(self._build_document())
