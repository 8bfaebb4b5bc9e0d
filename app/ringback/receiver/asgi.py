"""The receiver's half of ASGI: reading one request's body, sending one response, and its routes in a FastAPI application."""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from fastapi import APIRouter

    from ringback.receiver.app import ReceiverApp

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

BODY_BYTES_MAX: Final = 262_144 + 16_384
"""The largest body (mcp-events §8), plus 16 KiB for senders that count only their payload."""
BODY_SECONDS_MAX: Final = 10.0
"""The longest time for a body. Ringback's own senders give up after it, and a request counts before its sender is known."""


class BodyTooSlow(Exception):
    """The body was not complete after `BODY_SECONDS_MAX`."""


class BodyTooLarge(Exception):
    """The body has more than `BODY_BYTES_MAX` bytes. What its sender announced does not count."""


class Disconnected(Exception):
    """The sender closed the connection before its body was complete, so there is no response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    status: int
    content: Mapping[str, str] | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


def error_response(status: int, reason: str, **headers: str) -> Response:
    return Response(status=status, content={"reason": reason}, headers=headers)


def unavailable_response(reason: str, *, retry_after_seconds: float) -> Response:
    """A 503 with `Retry-After`, in whole seconds as RFC 9110 §10.2.3 requires."""
    headers = {"retry-after": str(math.ceil(retry_after_seconds))}
    return Response(status=503, content={"reason": reason}, headers=headers)


def decode_headers(raw: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in raw]


async def read_body(receive: Receive) -> bytes:
    """Read the body, and stop at `BODY_BYTES_MAX` whatever length the sender announces, and after `BODY_SECONDS_MAX`."""
    try:
        async with asyncio.timeout(BODY_SECONDS_MAX):
            return await _read_chunks(receive)
    except TimeoutError:
        raise BodyTooSlow from None


async def _read_chunks(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Disconnected
        body += message.get("body", b"")
        if len(body) > BODY_BYTES_MAX:
            raise BodyTooLarge
        if not message.get("more_body", False):
            return bytes(body)


async def send_response(response: Response, send: Send) -> None:
    body = b"" if response.content is None else json.dumps(response.content).encode()
    headers = [(name.encode(), value.encode()) for name, value in response.headers.items()]
    if response.content is not None:
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def run_lifespan(
    receive: Receive, send: Send, *, start: Callable[[], Awaitable[object]], stop: Callable[[], Awaitable[object]]
) -> None:
    """Serve the lifespan protocol. The server prints the message of a failed start, and exits."""
    await receive()
    try:
        await start()
    except Exception as error:  # noqa: BLE001 - the server reports it; a raised error would mean "no lifespan support"
        await send({"type": "lifespan.startup.failed", "message": str(error)})
        return
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await stop()
    await send({"type": "lifespan.shutdown.complete"})


def create_router(receiver: "ReceiverApp", path: str) -> "APIRouter":
    """The path with and without a slash at its end: FastAPI answers 307 to the other spelling of a single route.

    The routes are plain ASGI, so FastAPI reads no body, and dependencies of the application do not apply to callbacks.
    """
    try:
        from fastapi import APIRouter  # noqa: PLC0415 - optional: the receiver needs no framework
        from starlette.routing import Route  # noqa: PLC0415 - the same
    except ImportError as error:
        raise ImportError("ReceiverApp.router() and add_to() need FastAPI: pip install fastapi") from error
    if not path.startswith("/"):
        raise ValueError("The path of callbacks must start with a slash, such as /callbacks.")
    spellings = sorted({path.rstrip("/") or "/", path.rstrip("/") + "/"})
    return APIRouter(
        routes=[Route(spelling, receiver, methods=["POST"], include_in_schema=False) for spelling in spellings],
        lifespan=receiver.lifespan,
    )
