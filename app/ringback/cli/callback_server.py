"""The server of `ringback listen --port`: an ASGI receiver behind `http_connections`, which limits what it reads."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any

from ringback.cli.http_connections import (
    Header,
    InvalidHttpRequest,
    ReceivedRequest,
    accept_connections,
    encode_response,
    read_request,
)
from ringback.receiver import ReceiverApp
from ringback.receiver.asgi import BODY_BYTES_MAX, Message

OnRefused = Callable[[bytes], None]
"""Called with the body of a response whose status is 400 or higher."""


@asynccontextmanager
async def serve_receiver(
    receiver: ReceiverApp, listener: socket.socket, *, on_refused: OnRefused
) -> AsyncGenerator[None]:
    """Serve while the context is open. At its end, accept no more connections and answer the requests that have arrived."""
    reading: set[asyncio.Task[Any]] = set()
    is_ending = False

    async def read(reader: asyncio.StreamReader) -> ReceivedRequest | None:
        if is_ending or (task := asyncio.current_task()) is None:
            return None
        reading.add(task)
        try:
            return await read_request(reader, body_bytes_max=BODY_BYTES_MAX)
        finally:
            reading.discard(task)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await read(reader)
        except InvalidHttpRequest as unreadable:
            response = _Response(unreadable.status)
        else:
            if request is None:  # the peer has closed before its end, or this server ends
                return
            response = await _respond(receiver, request)
        if response.status >= HTTPStatus.BAD_REQUEST:
            on_refused(bytes(response.body))
        writer.write(encode_response(response.status, response.headers, bytes(response.body)))
        await writer.drain()

    async with accept_connections(serve, listener):
        try:
            yield
        finally:
            is_ending = True
            for task in reading:  # their senders have no promise, and send their callbacks again
                task.cancel()


async def _respond(receiver: ReceiverApp, request: ReceivedRequest) -> "_Response":
    """The receiver's response, which is 413 to a body that is too large."""
    response = _Response()

    async def receive() -> Message:
        return {"type": "http.request", "body": bytes(request.body), "more_body": False}

    scope: Message = {"type": "http", "method": request.method, "headers": request.headers}
    await receiver(scope, receive, response.send)
    return response


class _Response:
    """What the receiver sends."""

    def __init__(self, status: int = HTTPStatus.INTERNAL_SERVER_ERROR) -> None:
        self.status = int(status)
        self.headers: list[Header] = []
        self.body = bytearray()

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
        else:
            self.body += message.get("body", b"")
