"""An MCP server and its authorization server that are sound until a test replaces a document or a response.

server = HostileLoginServer()
async with server.serving():
    server.metadata["token_endpoint"] = "http://169.254.169.254/token"
    …
    redirected_to = server.approve(authorization_url, iss="https://another.example")
"""

import asyncio
import contextlib
import functools
import gzip
import itertools
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from scripts.ports import free_port
from tests.support.limits import WAIT_SECONDS
from tests.support.login_peers.account_server import AccountServer
from tests.support.login_peers.peer import READ, read_body, replay_body
from tests.support.upstreams import App, Receive, Scope, Send, send_response, serving

RESOURCE_METADATA_PATH: Final = "/.well-known/oauth-protected-resource/mcp"
METADATA_PATH: Final = "/.well-known/oauth-authorization-server"
PIECE: Final = b"x" * 64 * 1024
TRICKLE_SECONDS: Final = 0.01
"""Between two bytes of a response that trickles. Below any read timeout, so only a limit for the whole response ends it."""

Response = Callable[[Send, asyncio.Event], Awaitable[None]]
"""Sends a response; the event is set once the client has left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
    """A request for anything but the MCP endpoint."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode()))


@dataclass(slots=True)
class HostileLoginServer:
    """Documents are changed by assigning; a value of None omits the member."""

    resource_metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    """Replaces members of the resource's metadata (RFC 9728)."""
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    """Replaces members of the authorization server's metadata (RFC 8414)."""
    registration: dict[str, Any] = field(default_factory=dict[str, Any])
    """Replaces members of the response to a registration (RFC 7591)."""
    token: dict[str, Any] = field(default_factory=dict[str, Any])
    """Replaces members of the token response."""
    responses: dict[str, Response] = field(default_factory=dict[str, Response])
    """Responses by path, in the place of all others."""
    challenge: str | None = None
    """The `www-authenticate` header of a 401; None: the usual one."""
    required_scopes: list[str] = field(default_factory=list[str])
    """Scopes of which the server requires the first one that a token lacks, by 403 `insufficient_scope`."""
    accepts_tokens: bool = True
    """Whether any token is good; otherwise all requests to the endpoint get a 401."""
    requests: list[HttpRequest] = field(default_factory=list[HttpRequest])
    mcp_tokens: list[str | None] = field(default_factory=list[str | None])
    """The token of each request to the MCP endpoint."""
    tools: AccountServer = field(default_factory=AccountServer)
    origin: str = ""
    _granted: dict[str, str] = field(default_factory=dict[str, str])
    _numbers: int = 0
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"{self.origin}/mcp"

    @property
    def secrets(self) -> list[str]:
        """What must appear in no log, error or callback."""
        return [f"canary-{kind}-{number}" for number in range(self._numbers + 1) for kind in _SECRET_KINDS]

    @asynccontextmanager
    async def serving(self) -> AsyncGenerator["HostileLoginServer"]:
        port = free_port()
        self.origin = f"http://127.0.0.1:{port}"
        async with serving(self._make_app(), port=port):
            yield self

    def reset(self) -> None:
        """Be sound again, and forget the past."""
        for changed in (self.resource_metadata, self.metadata, self.registration, self.token, self.responses):
            changed.clear()
        self.required_scopes.clear()
        self.requests.clear()
        self.mcp_tokens.clear()
        self.challenge, self.accepts_tokens = None, True

    def approve(self, authorization_url: str, **replaced: str | None) -> str:
        """Where the browser arrives after the user has approved. None omits a parameter."""
        asked = {name: values[0] for name, values in parse_qs(urlsplit(authorization_url).query).items()}
        self._numbers += 1
        parameters = {"code": f"canary-code-{self._numbers}", "state": asked["state"], "iss": self.origin} | replaced
        self._granted["scope"] = asked.get("scope", READ)
        return f"{asked['redirect_uri']}?{urlencode(_without_none(parameters))}"

    async def wait_for_request(self, path: str) -> None:
        """Wait until a request for this path has arrived."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not self.list_requests(path):
                self._arrived.clear()
                await self._arrived.wait()

    def list_requests(self, path: str) -> list[HttpRequest]:
        return [request for request in self.requests if request.path == path]

    # -- the server --

    def _make_app(self) -> App:
        mcp = self.tools.app()

        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await mcp(scope, receive, send)
                return
            body = await read_body(receive)
            headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
            replacement = self.responses.get(scope["path"])
            if scope["path"] != "/mcp":
                request = HttpRequest(method=scope["method"], path=scope["path"], headers=headers, body=body)
                self.requests.append(request)
                self._arrived.set()
                await _send_while_connected(replacement or self._respond(request), receive, send)
                return
            token = headers.get("authorization", "").removeprefix("Bearer ") or None
            self.mcp_tokens.append(token)
            refusal = replacement or self._refuse_token(token)
            if refusal is None:
                await mcp(scope, replay_body(body, receive), send)
            else:
                await _send_while_connected(refusal, receive, send)

        return serve

    def _refuse_token(self, token: str | None) -> Response | None:
        metadata_url = f"{self.origin}{RESOURCE_METADATA_PATH}"
        if token is None or not self.accepts_tokens:
            challenge = self.challenge or f'Bearer resource_metadata="{metadata_url}", scope="{READ}"'
            return respond_with_status(401, challenge)
        granted = self._granted["scope"].split()
        missing = next((scope for scope in self.required_scopes if scope not in granted), None)
        if missing is None:
            return None
        return respond_with_status(
            403, f'Bearer error="insufficient_scope", scope="{missing}", resource_metadata="{metadata_url}"'
        )

    def _respond(self, request: HttpRequest) -> Response:
        match request.path:
            case "/.well-known/oauth-protected-resource/mcp":
                document = {"resource": self.url, "authorization_servers": [self.origin], "scopes_supported": [READ]}
                return respond_with_json(document | self.resource_metadata)
            case "/.well-known/oauth-authorization-server":
                return respond_with_json(self._make_metadata())
            case "/register":
                registered = {**json.loads(request.body), "client_id": "registered"}
                return respond_with_json(registered | self.registration, status=201)
            case "/token":
                return respond_with_json(self._issue_tokens())
            case "/revoke":
                return respond_with_json({})
            case _:
                return respond_with_json({}, status=404)

    def _make_metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.origin,
            "authorization_endpoint": f"{self.origin}/authorize",
            "token_endpoint": f"{self.origin}/token",
            "registration_endpoint": f"{self.origin}/register",
            "revocation_endpoint": f"{self.origin}/revoke",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic", "client_secret_post"],
            "authorization_response_iss_parameter_supported": True,
        } | self.metadata

    def _issue_tokens(self) -> dict[str, Any]:
        self._numbers += 1
        return {
            "access_token": f"canary-access-{self._numbers}",
            "refresh_token": f"canary-refresh-{self._numbers}",
            "token_type": "Bearer",
            "expires_in": 3600,
            "scope": self._granted.get("scope", READ),
        } | self.token


_SECRET_KINDS: Final = ("code", "access", "refresh")


# -- responses --------------------------------------------------------------------------------------------------------------


def respond_with_json(document: dict[str, Any], *, status: int = 200) -> Response:
    return respond_with_body(json.dumps(_without_none(document)).encode(), status=status)


def respond_with_body(body: bytes, *, content_type: str = "application/json", status: int = 200) -> Response:
    async def respond(send: Send, _left: asyncio.Event) -> None:
        await send_response(send, status, content_type, body)

    return respond


def respond_with_status(status: int, challenge: str) -> Response:
    async def respond(send: Send, _left: asyncio.Event) -> None:
        headers = [(b"www-authenticate", challenge.encode("latin-1")), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    return respond


def redirect_to(url: str, *, status: int = 302) -> Response:
    async def respond(send: Send, _left: asyncio.Event) -> None:
        headers = [(b"location", url.encode()), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    return respond


class StreamedBody:
    """A body in pieces; counts the bytes that the client let through before it left."""

    def __init__(self, pieces: Iterable[bytes], *, pause_seconds: float = 0.0, encoding: str = "") -> None:
        self.sent_bytes = 0
        self.was_left = asyncio.Event()
        """Set once the response ended: the client closed the connection, or the body was complete."""
        self._pieces = pieces
        self._pause_seconds = pause_seconds
        self._encoding = encoding

    async def wait_until_left(self) -> None:
        await asyncio.wait_for(self.was_left.wait(), WAIT_SECONDS)

    async def __call__(self, send: Send, left: asyncio.Event) -> None:
        headers = [(b"content-type", b"application/json")]
        headers += [(b"content-encoding", self._encoding.encode())] if self._encoding else []
        try:
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            for piece in self._pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                self.sent_bytes += len(piece)
                if await _is_set_within(left, self._pause_seconds):
                    return
            await send({"type": "http.response.body", "body": b""})
        finally:
            self.was_left.set()


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    await asyncio.sleep(0)
    with contextlib.suppress(TimeoutError):
        if seconds:
            await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


async def _send_while_connected(response: Response, receive: Receive, send: Send) -> None:
    left = asyncio.Event()

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    watching = asyncio.create_task(watch())
    try:
        await response(send, left)
    finally:
        watching.cancel()


def make_large_json() -> Iterator[bytes]:
    """Ten million bytes of valid metadata, in pieces."""
    yield b'{"padding": "'
    yield from itertools.repeat(PIECE, 10_000_000 // len(PIECE))
    yield b'"}'


@functools.cache
def make_gzip_bomb() -> bytes:
    """Ten thousand bytes that unpack to ten million."""
    return gzip.compress(b"".join(make_large_json()))


def _without_none(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value is not None}
