"""A minimal authorization server, and an MCP server that accepts only its tokens; both on real sockets.

authorization = AuthorizationServer()
async with serving(authorization) as issuer, serving(authorization.guarding(stage.app())) as server: …
"""

import asyncio
import json
from base64 import b64decode
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from tests.support.upstreams import App, Receive, Scope, Send, send_response

CLIENT_ID: Final = "ringback at acme"
CLIENT_SECRET: Final = "s3cret: with/odd characters"


class AuthorizationServer:
    """Issues numbered tokens to one client, and accepts each until it is revoked."""

    def __init__(self) -> None:
        self.forms: list[dict[str, str]] = []
        """The parameters of token requests, with the client's authentication method."""
        self.good: set[str] = set()
        self.shown: list[str] = []
        """The tokens of requests to the MCP server."""
        self.expires_in: Any = 3600
        self.spoiled: tuple[int, bytes] | None = None
        """The response instead of a token."""
        self.challenge = b'Bearer resource_metadata="http://127.0.0.1:9/"'
        """Of the MCP server for other tokens."""
        self.open = asyncio.Event()
        """While cleared, token requests wait."""
        self.open.set()

    def revoke_tokens(self) -> None:
        self.good.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await _lifespan(receive, send)
            return
        body = (await receive()).get("body", b"")
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        if basic := headers.get("authorization"):
            pair = b64decode(basic.removeprefix("Basic ")).decode()
            form["basic_id"], form["basic_secret"] = (unquote(part) for part in pair.split(":"))
        self.forms.append(form)
        await self.open.wait()
        if self.spoiled is not None:
            await send_response(send, self.spoiled[0], "application/json", self.spoiled[1])
            return
        if CLIENT_SECRET not in {form.get("basic_secret"), form.get("client_secret")}:
            await send_response(
                send, 401, "application/json", b'{"error": "invalid_client", "error_description": "words"}'
            )
            return
        token = f"token-{len(self.forms)}"
        self.good.add(token)
        issued = {"access_token": token, "token_type": "bearer", "expires_in": self.expires_in}
        await send_response(send, 200, "application/json", json.dumps(issued).encode())

    def require_token(self, app: App) -> App:
        async def guarded(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                token = dict(scope["headers"]).get(b"authorization", b"").decode().removeprefix("Bearer ")
                self.shown.append(token)
                if token not in self.good:
                    reason = b', error="invalid_token"' if token else b""
                    headers = [(b"www-authenticate", self.challenge + reason)]
                    await send({"type": "http.response.start", "status": 401, "headers": headers})
                    await send({"type": "http.response.body", "body": b""})
                    return
            await app(scope, receive, send)

        return guarded


async def _lifespan(receive: Receive, send: Send) -> None:
    for step in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{step}.complete"})
