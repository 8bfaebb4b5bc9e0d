"""A whole service with an issuer on loopback, and two upstreams that record all received requests."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from ringback.domain.principal import DEFAULT_SCOPES, Scope
from tests.support.application import PUBLIC_URL, RunningApplication, running_application
from tests.support.token_issuer import FakeTokenIssuer
from tests.support.upstreams import App, ControlledUpstream, Message, Receive, Send, make_http_config, serving
from tests.support.upstreams import Scope as AsgiScope

ALL_SCOPES: Final = "ringback:calls ringback:read ringback:webhooks"
MODERN: Final = "2026-07-28"
TASKS: Final = "io.modelcontextprotocol/tasks"


@dataclass(slots=True)
class RecordingApp:
    """An upstream with its received requests."""

    app: App
    received: list[bytes] = field(default_factory=list[bytes])

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self.received += [part for header in scope["headers"] for part in header]

        async def recorded() -> Message:
            message = await receive()
            self.received.append(message.get("body", b""))
            return message

        await self.app(scope, recorded, send)


@dataclass(slots=True, kw_only=True)
class OAuthService:
    service: RunningApplication
    issuer: FakeTokenIssuer
    upstream: RecordingApp
    http: httpx.AsyncClient

    async def create_api_key(
        self, principal: str, *, scopes: frozenset[Scope] = DEFAULT_SCOPES, upstreams: frozenset[str] | None = None
    ) -> str:
        keys = self.service.app.services.api_keys
        _, text = await keys.create_key(principal, name="test", scopes=scopes, upstreams=upstreams)
        return text

    async def post_modern(
        self,
        path: str,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        bearer: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """One request of 2026-07-28."""
        meta: dict[str, Any] = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS: {}}},
        }
        named = next((params[key] for key in ("name", "uri", "taskId") if key in params), None) if params else None
        name = {"mcp-name": named} if named else {}
        sent = {"mcp-protocol-version": MODERN, "mcp-method": method, **name, **(headers or {})}
        return await self._post(path, method, {**(params or {}), "_meta": meta}, bearer=bearer, headers=sent)

    async def open_legacy_session(self, path: str, *, bearer: str | None) -> str:
        """Open a legacy session; its id."""
        params = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        }
        opened = await self.post_legacy(path, "initialize", params, bearer=bearer)
        assert opened.status_code == 200, opened.text
        return opened.headers["mcp-session-id"]

    async def post_legacy(
        self, path: str, method: str, params: dict[str, Any], *, bearer: str | None, session_id: str | None = None
    ) -> httpx.Response:
        """One legacy request."""
        headers = {"mcp-session-id": session_id} if session_id else {}
        return await self._post(path, method, params, bearer=bearer, headers=headers)

    async def _post(
        self, path: str, method: str, params: dict[str, Any], *, bearer: str | None, headers: Mapping[str, str]
    ) -> httpx.Response:
        sent = {"accept": "application/json, text/event-stream", **headers}
        if bearer is not None:
            sent["authorization"] = f"Bearer {bearer}"
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return await self.http.post(path, json=message, headers=sent)


@asynccontextmanager
async def running_oauth_service(folder: Path) -> AsyncGenerator[OAuthService]:
    issuer, upstream = FakeTokenIssuer(), RecordingApp(ControlledUpstream().app())
    async with (
        serving(issuer) as issuing,
        serving(upstream) as server,
        running_application(
            folder,
            make_http_config(server.url, name="git"),
            make_http_config(server.url, name="time"),
            oidc_issuer=f"http://127.0.0.1:{issuing.port}",
            allowed_origins=("https://console.example",),
        ) as service,
        httpx.AsyncClient(transport=httpx.ASGITransport(service.app.api), base_url=PUBLIC_URL) as http,
    ):
        issuer.url = f"http://127.0.0.1:{issuing.port}"
        yield OAuthService(service=service, issuer=issuer, upstream=upstream, http=http)
