"""What tests know of a server that requires a login, and what they do to it."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, cast
from urllib.parse import parse_qsl

from mcp.server.auth.provider import AccessToken, RefreshToken

from tests.support.upstreams import App, Message, Receive, Scope, Send

READ: Final = "files:read"
"""The scope that every request to the MCP server requires."""
WRITE: Final = "files:write"
"""A scope that only some tools require, by `LoginPeer.tool_scopes`."""


class IssuedTokens(Protocol):
    """The tables of a provider with the tokens that it accepts."""

    access_tokens: Any
    refresh_tokens: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class McpRequest:
    """A request that arrived at the MCP endpoint."""

    method: str | None
    """The JSON-RPC method; None for a GET or DELETE."""
    tool: str | None
    token: str | None
    status: int
    """The status of its response."""


def _make_set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass(slots=True, kw_only=True)
class LoginPeer:
    """An MCP server and its authorization server."""

    url: str
    """The MCP endpoint."""
    issuer: str
    provider: IssuedTokens
    issues_tokens: asyncio.Event = field(default_factory=_make_set_event)
    """While it is not set, the token endpoint does not answer."""
    tool_scopes: dict[str, str] = field(default_factory=dict[str, str])
    """The scope that a tool requires besides `READ`; without it the server responds 403 `insufficient_scope`."""
    received: list[McpRequest] = field(default_factory=list[McpRequest])
    token_requests: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """The forms of the token endpoint."""
    secrets: set[str] = field(default_factory=set[str])
    """Every token, code and client secret that this server issued, and every verifier that it received."""

    @property
    def access_tokens(self) -> Mapping[str, AccessToken]:
        """The access tokens that the server accepts now."""
        return self.provider.access_tokens

    @property
    def refresh_tokens(self) -> Mapping[str, RefreshToken]:
        return self.provider.refresh_tokens

    def expire_access_tokens(self) -> None:
        """The server refuses all access tokens from now on; refresh tokens are accepted."""
        self.provider.access_tokens.clear()

    def revoke_all_tokens(self) -> None:
        """The server refuses all tokens from now on, also refresh tokens."""
        self.provider.access_tokens.clear()
        self.provider.refresh_tokens.clear()

    def list_tokens_of_calls(self, tool: str) -> list[str | None]:
        """The tokens of successful requests that called this tool."""
        return [each.token for each in self.received if each.tool == tool and each.status < 400]


class PeerFront:
    """ASGI in front of a peer: it records requests, and refuses calls of tools whose scope the token lacks."""

    def __init__(self, app: App, peer: LoginPeer, *, metadata_url: str) -> None:
        self._app = app
        self._peer = peer
        self._metadata_url = metadata_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = await read_body(receive) if scope["method"] == "POST" else b""
        if scope["path"] == "/mcp":
            await self._serve_mcp(scope, replay_body(body, receive), send, _parse_json(body))
        else:
            await self._serve_authorization(scope, replay_body(body, receive), send, body)

    async def _serve_mcp(self, scope: Scope, receive: Receive, send: Send, message: Mapping[str, Any]) -> None:
        token = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ") or None
        method = message.get("method")
        tool = message["params"]["name"] if method == "tools/call" else None

        async def recording(sent: Message) -> None:
            if sent["type"] == "http.response.start":
                request = McpRequest(method=method, tool=tool, token=token, status=sent["status"])
                self._peer.received.append(request)
            await send(sent)

        if missing := self._find_missing_scope(tool, token):
            await self._send_insufficient_scope(missing, recording)
        else:
            await self._app(scope, receive, recording)

    def _find_missing_scope(self, tool: str | None, token: str | None) -> str | None:
        accepted = self._peer.access_tokens.get(token or "")
        required = self._peer.tool_scopes.get(tool or "")
        return required if accepted is not None and required is not None and required not in accepted.scopes else None

    async def _send_insufficient_scope(self, scope: str, send: Send) -> None:
        challenge = f'Bearer error="insufficient_scope", scope="{scope}", resource_metadata="{self._metadata_url}"'
        headers = [(b"www-authenticate", challenge.encode()), (b"content-length", b"0")]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": b""})

    async def _serve_authorization(self, scope: Scope, receive: Receive, send: Send, body: bytes) -> None:
        peer = self._peer
        if scope["path"] == "/token":
            form = dict(parse_qsl(body.decode()))
            peer.token_requests.append(form)
            peer.secrets |= {form[name] for name in ("code", "code_verifier", "refresh_token") if name in form}
            await peer.issues_tokens.wait()

        async def recording(sent: Message) -> None:
            if sent["type"] == "http.response.body" and scope["path"] in {"/token", "/register"}:
                answer = _parse_json(sent.get("body", b""))
                names = ("access_token", "refresh_token", "client_secret")
                peer.secrets |= {answer[name] for name in names if answer.get(name)}
            await send(sent)

        await self._app(scope, receive, recording)


async def read_body(receive: Receive) -> bytes:
    body = b""
    more = True
    while more:
        part = await receive()
        body += part.get("body", b"")
        more = part.get("more_body", False)
    return body


def replay_body(body: bytes, receive: Receive) -> Receive:
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return parts.pop() if parts else await receive()

    return replay


def _parse_json(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return cast("dict[str, Any]", document) if isinstance(document, dict) else {}
