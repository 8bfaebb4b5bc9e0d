"""ASGI middleware that limits the memory of large responses and writes them in pieces.

The size of a response is known from its Content-Length, or from one event of a stream. Beyond the limits of
`services.limits.unread_responses` the first is refused with the error of the limit, and the second ends its stream: its client
reads on from its last event, or asks for its call again.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringback.api.problems import error_response
from ringback.domain.errors import QuotaExceeded, Unavailable
from ringback.domain.principal import Caller
from ringback.loop_turns import LoopTurns
from ringback.services.limits.unread_responses import (
    ADDRESS_READER_PREFIX,
    IS_CONNECTED,
    LARGE_RESPONSE_BYTES,
    ResponseMemory,
    UnreadResponses,
)
from ringback.services.response_hooks import drop_response_hook

PIECE_BYTES: Final = 64 * 1024
"""Of a large body, passed on at once. The server accepts the next piece when the client has read most of the earlier ones."""
PIECES_IN_TURN: Final = 1
"""Pieces of all responses that are written in one turn of the event loop. The system's buffer of a connection takes megabytes
before anything is read, and a hundred connections that get a piece in each turn delay each turn by some ten milliseconds."""
PAUSE_FACTOR: Final = 4.0
"""While the loop has other work, pieces wait for four times as long as it takes: they took half of each turn (measured)."""
_CALLER_KEYS: Final = ("caller", "ringback.caller")
"""Of the callers that REST and MCP have authenticated, in the state of the request."""


class LargeResponseMiddleware:
    def __init__(self, app: ASGIApp, *, responses: UnreadResponses) -> None:
        self._app = app
        self._responses = responses
        self._turns = LoopTurns(PIECES_IN_TURN, pause_factor=PAUSE_FACTOR)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        memory = self._responses.open_response(scope.setdefault("state", {}))
        try:
            await self._app(scope, receive, _LargeResponse(scope, receive, send, memory, self._turns))
        finally:
            memory.release()


class _LargeResponse:
    """Sends one response. Small messages pass unchanged."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, memory: ResponseMemory, turns: LoopTurns) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._is_connected: Callable[[], bool] = scope["state"].get(IS_CONNECTED, lambda: True)
        """Pieces for clients that have disconnected would wait for turns, and their clients come back faster than they end."""
        self._memory = memory
        self._turns = turns
        self._is_refused = False
        self._writing: asyncio.Lock | None = None
        """Exists from the first large body on. A stream may send a comment while another task writes an event."""

    async def __call__(self, message: Message) -> None:
        if self._is_refused:
            return
        if message["type"] == "http.response.start":
            await self._start_response(message)
        elif len(message.get("body", b"")) >= LARGE_RESPONSE_BYTES:
            await self._write_pieces(message)
        elif self._writing is None:
            await self._send(message)
        else:
            async with self._writing:
                await self._send(message)

    async def _start_response(self, message: Message) -> None:
        try:
            self._memory.reserve(_find_reader(self._scope), _read_body_length(self._scope, message))
        except (QuotaExceeded, Unavailable) as error:
            self._is_refused = True
            drop_response_hook(self._scope["state"])
            await error_response(self._scope, error)(self._scope, self._receive, self._send)
        else:
            await self._send(message)

    async def _write_pieces(self, message: Message) -> None:
        body: bytes | memoryview[int] = message["body"]
        reader = _find_reader(self._scope)
        self._writing = self._writing or asyncio.Lock()
        async with self._writing:
            try:
                with self._memory.reserve_for_event(reader, len(body)):
                    for start in range(0, len(body), PIECE_BYTES):
                        await self._turns.wait(reader, self._is_connected)
                        if not self._is_connected():
                            return
                        piece = {**message, "body": bytes(body[start : start + PIECE_BYTES])}
                        is_last = start + PIECE_BYTES >= len(body)
                        await self._send(piece if is_last else {**piece, "more_body": True})
            except (QuotaExceeded, Unavailable):
                await self._end_stream()

    async def _end_stream(self) -> None:
        self._is_refused = True
        drop_response_hook(self._scope["state"])
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})
        raise ClientDisconnect


def _find_reader(scope: Scope) -> str:
    """The principal of the request, or the address of a client without one."""
    for key in _CALLER_KEYS:
        caller = scope["state"].get(key)
        if isinstance(caller, Caller):
            return caller.principal
    client = scope.get("client")
    return f"{ADDRESS_READER_PREFIX}{client[0] if client else ''}"


def _read_body_length(scope: Scope, start: Message) -> int:
    """The bytes of the body, if they are known. The Content-Length of a HEAD or a 304 is that of a body that is not sent."""
    if scope["method"] == "HEAD" or start["status"] == HTTPStatus.NOT_MODIFIED:
        return 0
    return next((int(value) for name, value in start["headers"] if name == b"content-length"), 0)
