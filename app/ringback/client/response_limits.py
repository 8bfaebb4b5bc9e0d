"""How long a response may take. httpx limits each read of it only, so one that arrives a byte at a time would never end.

    connect ─▶ send the request ─▶ headers ─▶ 16 KiB ─▶ 16 KiB ─▶ … ─▶ end
    ╰──── the request's timeouts ────╯     ╰─ its read timeout each ─╯

A long poll has its wait in the read timeout. An event stream has no limit after its headers but that on silence.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

import httpx

PROGRESS_BYTES: Final = 16 * 1024
"""In each read timeout. With that of 30 s it is half a KiB a second, which the slowest of mobile networks has."""


async def receive_response(http: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
    """Send the request, and read the whole response. Raises `httpx.ReadTimeout`, too, for one that makes no progress."""
    response = await open_response(http, request)
    try:
        await read_body(response)
    except BaseException:
        await response.aclose()
        raise
    return response


async def open_response(http: httpx.AsyncClient, request: httpx.Request) -> httpx.Response:
    """Send the request, and read the headers of the response."""
    try:
        async with asyncio.timeout(_allow_until_headers(request)):
            return await http.send(request, stream=True)
    except TimeoutError:
        raise httpx.ReadTimeout("The headers of the response did not end.", request=request) from None


async def read_body(response: httpx.Response) -> None:
    """Read the body, which is then the `content` of the response."""
    stream = response.stream
    try:
        async with asyncio.timeout(None) as limit:
            if isinstance(stream, httpx.AsyncByteStream):
                response.stream = _TimedStream(stream, lambda: _extend(limit, response.request))
            await response.aread()
    except TimeoutError:
        raise httpx.ReadTimeout("The response did not end.", request=response.request) from None
    finally:
        response.stream = stream  # a mocked transport may return one response several times


def _extend(limit: asyncio.Timeout, request: httpx.Request) -> None:
    limit.reschedule(asyncio.get_running_loop().time() + request.extensions["timeout"]["read"])


def _allow_until_headers(request: httpx.Request) -> float:
    """The seconds for all that comes before the body. TCP, TLS and each part of a large request have a timeout each."""
    timeouts: dict[str, float] = request.extensions["timeout"]
    parts = len(request.content) // PROGRESS_BYTES
    sending = timeouts["write"] * parts if parts else 0.0  # 0 times infinity is no number
    return timeouts["pool"] + 2 * timeouts["connect"] + sending + timeouts["read"]


class _TimedStream(httpx.AsyncByteStream):
    """Calls `on_progress` at the beginning, and after each `PROGRESS_BYTES`."""

    def __init__(self, stream: httpx.AsyncByteStream, on_progress: Callable[[], None]) -> None:
        self._stream = stream
        self._on_progress = on_progress

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self._on_progress()
        received = 0
        async for chunk in self._stream:
            received += len(chunk)
            if received >= PROGRESS_BYTES:
                received = 0
                self._on_progress()
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
