"""ASGI middleware around every request: unexpected errors, Host, Origin and repeated headers, the body, response hooks.

Host and Origin are checked because a browser on the same machine or network is a confused deputy. A page that rebinds its own
name to our address still sends that name as Host, and a page of another site sends its Origin. MCP's streamable HTTP transport
requires the same checks.
"""

import logging
import re
from contextlib import suppress
from typing import Final, cast
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ringback.api.context import ApiConfig
from ringback.api.http_errors import (
    ContentTooLarge,
    HostNotAllowed,
    InternalError,
    MalformedRequest,
    OriginNotAllowed,
    UnsupportedContentEncoding,
)
from ringback.api.problems import error_response
from ringback.api.request_context import describe_route
from ringback.domain.client_address import parse_address
from ringback.domain.errors import RingbackError
from ringback.domain.validation import is_loopback
from ringback.services.response_hooks import response_written_hook

log = logging.getLogger(__name__)

PROBE_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Probes of process managers, which can use any host name. These paths disclose nothing and change nothing."""

METRICS_PATH: Final = "/metrics"

SHOWN_LENGTH_MAX: Final = 40
"""Characters of a header's value that an error repeats: the client chose the value."""
_SINGLE_HEADERS: Final = {
    b"authorization": "Authorization",
    b"idempotency-key": "Idempotency-Key",
    b"ringback-idempotency-key": "Ringback-Idempotency-Key",
    b"mcp-session-id": "Mcp-Session-Id",
}
"""Headers that say who sends a request, and which one it is. With two of them, this service and a proxy in front of it could
each count another one; a key that does not count protects from no second run."""
_HOST_PATTERN = re.compile(r"(?P<name>\[[0-9a-fA-F:.]+\]|[^\s:/?#@\[\]]+)(?::[0-9]{0,5})?")


class UnhandledErrorMiddleware:
    """Logs an unexpected error and responds with a 500 without details."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def send_and_track(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._app(scope, receive, send_and_track)
        except Exception as error:  # the boundary between a bug and the other requests
            if _is_client_disconnect(error):
                log.debug("request.abandoned")
                return
            if scope["type"] != "http" or started:
                raise
            client = (scope.get("client") or ("unknown",))[0]
            facts = {"method": scope["method"], "route": describe_route(scope), "client": client}
            log.exception("request.failed", extra=facts)
            failure = InternalError(
                "The service failed at this request; its log has the reason. A call with an Idempotency-Key can be "
                "sent again."
            )
            await error_response(scope, failure)(scope, receive, send)


def _is_client_disconnect(error: BaseException) -> bool:
    """Whether the error, or each error of a group, is only the disconnect of the client."""
    if isinstance(error, BaseExceptionGroup):
        return all(_is_client_disconnect(one) for one in cast("BaseExceptionGroup[BaseException]", error).exceptions)
    return isinstance(error, ClientDisconnect)


class HeaderCheckMiddleware:
    """Rejects requests for other hosts, from other origins, and with two headers where one must count."""

    def __init__(self, app: ASGIApp, *, config: ApiConfig) -> None:
        self._app = app
        public = config.public_url.partition("://")[2].partition("/")[0]
        self._hosts = {_parse_host_name(host) for host in (public, *config.allowed_hosts)}
        self._origins = frozenset({*config.allowed_origins, read_origin(config.public_url)})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        rejection = self._check_headers(scope) if scope["type"] == "http" and scope["path"] not in PROBE_PATHS else None
        responder = self._app if rejection is None else error_response(scope, rejection)
        await responder(scope, receive, send)

    def _check_headers(self, scope: Scope) -> RingbackError | None:
        headers = Headers(scope=scope)
        if not self._is_allowed_host(headers.getlist("host"), scope):
            return HostNotAllowed(
                "The Host header names another service. Use the public URL of this service, or let its operator set "
                "RINGBACK_PUBLIC_URL or RINGBACK_ALLOWED_HOSTS."
            )
        origin = headers.get("origin")
        if origin is not None and origin not in self._origins and not is_same_loopback_origin(origin, headers["host"]):
            return OriginNotAllowed(
                "Pages of this origin may not call the API. Let the operator add the origin to RINGBACK_ALLOWED_ORIGINS."
            )
        return _find_repeated_header(scope)

    def _is_allowed_host(self, hosts: list[str], scope: Scope) -> bool:
        name = _parse_host_name(hosts[0]) if len(hosts) == 1 else None
        if name is None:
            return False
        return name in self._hosts or _is_scrape(scope, name) or (is_loopback(name) and self._is_on_loopback(scope))

    def _is_on_loopback(self, scope: Scope) -> bool:
        """Whether the connection arrived on a loopback address, or the public URL is one."""
        server = scope.get("server")
        names = {*self._hosts, server[0] if server else None}
        return any(is_loopback(name) for name in names if name is not None)


def _is_scrape(scope: Scope, host_name: str) -> bool:
    """Whether a monitor asks this node for its metrics: at its own address, which is no public name.

    A page of a rebound name has no API key, and authentication can be off on loopback only. There an address is allowed,
    which cannot be rebound: the sidecar of a service mesh forwards a scrape of the node's address to loopback.
    """
    if scope["path"] != METRICS_PATH:
        return False
    server = scope.get("server")
    return (server is not None and not is_loopback(server[0])) or parse_address(host_name) is not None


def _find_repeated_header(scope: Scope) -> RingbackError | None:
    found = [name for name, _ in scope["headers"] if name in _SINGLE_HEADERS]
    for name in found:
        if found.count(name) > 1:
            return MalformedRequest(f"The header {_SINGLE_HEADERS[name]} is sent more than once. Send it once.")
    return None


class BodyLimitMiddleware:
    """Counts the bytes of a body as they arrive and rejects it at the limit, whatever its Content-Length.

    A compressed body is rejected, too: it would be read as it is, and a limit of its bytes would not limit its content.
    """

    def __init__(self, app: ASGIApp, *, bytes_max: int) -> None:
        self._app = app
        self._bytes_max = bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, self._counting_receive(scope, receive) if scope["type"] == "http" else receive, send)

    def _counting_receive(self, scope: Scope, receive: Receive) -> Receive:
        received_bytes = 0
        declared = Headers(scope=scope).get("content-length", "")
        declared_bytes = int(declared) if declared.isascii() and declared.isdigit() else 0
        encoding = Headers(scope=scope).get("content-encoding", "identity")

        async def counted() -> Message:
            nonlocal received_bytes
            self._check_size(declared_bytes)
            message = await receive()
            received_bytes += len(message.get("body", b""))
            self._check_size(received_bytes)
            if received_bytes and encoding.strip().lower() != "identity":
                raise UnsupportedContentEncoding(
                    f"The body has the Content-Encoding '{_shorten(encoding)}'. Send it uncompressed, without this header."
                )
            return message

        return counted

    def _check_size(self, size: int) -> None:
        if size > self._bytes_max:
            raise ContentTooLarge(
                f"The body is larger than {self._bytes_max} bytes. Send large data by reference.",
                bytes_max=self._bytes_max,
            )


def _shorten(text: str) -> str:
    return text if len(text) <= SHOWN_LENGTH_MAX else f"{text[:SHOWN_LENGTH_MAX]}…"


class ResponseHookMiddleware:
    """Runs the hook of a response (`services.response_hooks`) after the response was written, if its client is still connected.

    A server reports a disconnect only before the response is complete, and it blocks a message until most of the earlier data
    has left the process. So the middleware sends an empty chunk after the last one and then checks the connection. Losses in
    the network after that remain unknown.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope.setdefault("state", {})
        is_delivered = False

        async def send_and_check(message: Message) -> None:
            nonlocal is_delivered
            if (
                message["type"] == "http.response.body"
                and not message.get("more_body", False)
                and response_written_hook(state)
            ):
                for body in (message.get("body", b""), b""):
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                is_delivered = not await Request(scope, receive).is_disconnected()
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        await self._app(scope, receive, send_and_check)
        action = response_written_hook(state)
        if is_delivered and action is not None:
            with suppress(RingbackError):  # then the client gets a callback that it did not need
                await action()


def is_same_loopback_origin(origin: str, host: str) -> bool:
    """Whether Host is a loopback address and Origin is the same address.

    Clients on this machine send such an Origin (MCP 2026-07-28, transports: servers accept valid local origins).
    """
    return is_loopback(_parse_host_name(host) or "") and origin == f"http://{host}"


def read_origin(url: str) -> str:
    """The Origin that a browser sends for pages at this URL (RFC 6454 §6.2): lower case, without the default port."""
    parts = urlsplit(url)
    default_port = {"http": ":80", "https": ":443"}.get(parts.scheme, "")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2].lower().removesuffix(default_port)}"


def _parse_host_name(host: str) -> str | None:
    """Return the host name of a Host header or a setting, without its port; None if it is malformed."""
    match = _HOST_PATTERN.fullmatch(host)
    return match["name"].strip("[]").lower() if match else None
