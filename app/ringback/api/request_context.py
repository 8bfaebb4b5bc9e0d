"""The ids of a request: in its log lines, and in its response.

A proxy or a client names its request with `X-Request-Id`; otherwise Ringback does. `traceparent` (W3C Trace Context) adds the
id of the trace; without it, the span of the request has one, if the service makes traces. Both headers end in logs, so one that
is malformed or too long is ignored, as if it was not sent.
"""

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringback.log_context import log_facts
from ringback.telemetry.spans import current_trace_id

log = logging.getLogger(__name__)

REQUEST_ID_HEADER: Final = "x-request-id"
REQUEST_ID_BYTES: Final = 12
"""Of a generated id: 96 random bits, so that ids of all nodes differ."""
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")
"""What common proxies and tracing libraries generate: UUIDs, hexadecimal numbers, base64, AWS's `Root=1-…`."""
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})(?P<trace_id>[0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"
)
"""W3C Trace Context §3.2: later versions may append fields."""


class RequestContextMiddleware:
    """Gives each request its ids. All middleware that refuses requests is inside it, so refused requests have ids, too."""

    def __init__(self, app: ASGIApp, *, random_bytes: Callable[[int], bytes]) -> None:
        self._app = app
        self._random_bytes = random_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = read_request_id(headers) or self._random_bytes(REQUEST_ID_BYTES).hex()
        status: int | None = None

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        with log_facts(request_id=request_id, trace_id=read_trace_id(headers) or current_trace_id()):
            started_at = asyncio.get_running_loop().time()
            try:
                await self._app(scope, receive, send_with_id)
            finally:
                if log.isEnabledFor(logging.DEBUG):
                    _log_request(scope, status, started_at)


def read_request_id(headers: Headers) -> str | None:
    """The client's `X-Request-Id`; None without a usable one."""
    values = headers.getlist(REQUEST_ID_HEADER)
    return values[0] if len(values) == 1 and _REQUEST_ID.fullmatch(values[0]) else None


def read_trace_id(headers: Headers) -> str | None:
    """The trace of `traceparent`; None without a valid one."""
    values = headers.getlist("traceparent")
    found = _TRACEPARENT.fullmatch(values[0]) if len(values) == 1 else None
    return None if found is None or (values[0].startswith("00") and found[2]) else found["trace_id"]


def describe_route(scope: Scope) -> str:
    """The template of the path, `/v1/calls/{call_id}`, and not the path: a client may have put a token there."""
    return getattr(scope.get("route"), "path", None) or "-"


def _log_request(scope: Scope, status: int | None, started_at: float) -> None:
    """`status` is None if the client disconnected before the response."""
    duration_ms = round((asyncio.get_running_loop().time() - started_at) * 1000)
    facts = {"method": scope["method"], "route": describe_route(scope), "status": status, "duration_ms": duration_ms}
    log.debug("request.finished", extra=facts)
