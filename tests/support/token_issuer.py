"""A test's token issuer: real keys, a discovery document, a key set, and valid or invalid tokens.

issuer = FakeIssuer()
async with serving(issuer) as server:
    issuer.url = server.origin
    token = issuer.token(aud=f"{PUBLIC_URL}/mcp", scope="ringback:calls")
"""

import asyncio
import json
import warnings
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl

from joserfc import jwt
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey

from ringback.domain.clock import Clock, SystemClock
from tests.support.upstreams import Receive, Scope, Send, send_response

RSA_KEY: Final = RSAKey.generate_key(2048, {"kid": "rsa-1", "use": "sig"})
EC_KEY: Final = ECKey.generate_key("P-256", {"kid": "ec-1"})
ED_KEY: Final = OKPKey.generate_key("Ed25519", {"kid": "ed-1"})
OTHER_KEY: Final = ECKey.generate_key("P-256", {"kid": "ec-2"})
"""Unpublished until a test rotates to it."""
LIFETIME_SECONDS: Final = 300


@dataclass(slots=True)
class FakeTokenIssuer:
    """An ASGI application. What it publishes, and how it fails, is changed by assigning."""

    url: str = "https://issuer.example"
    clock: Clock = field(default_factory=SystemClock)
    keys: list[Key] = field(default_factory=lambda: [RSA_KEY, EC_KEY, ED_KEY])
    published: dict[str, Any] = field(default_factory=dict[str, Any])
    """Goes over what the discovery document says."""
    discovery_path: str = "/.well-known/openid-configuration"
    documents: dict[str, tuple[int, bytes]] = field(default_factory=dict[str, tuple[int, bytes]])
    """Put in the place of what is at a path: a status and a body."""
    unreachable: bool = False
    may_respond: asyncio.Event = field(default_factory=asyncio.Event)
    """Unset, nothing is answered."""
    request_arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by every request that comes in."""
    requested_paths: list[str] = field(default_factory=list[str])
    token_requests: list[dict[str, str]] = field(default_factory=list[dict[str, str]])
    """What clients wanted at the token endpoint."""

    def __post_init__(self) -> None:
        self.may_respond.set()

    @property
    def key_set_request_count(self) -> int:
        return self.requested_paths.count("/keys")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        self.requested_paths.append(scope["path"])
        self.request_arrived.set()
        await self.may_respond.wait()
        if scope["method"] == "POST":
            self.token_requests.append(dict(parse_qsl((await receive())["body"].decode())))
            await send_response(
                send, 200, "application/json", json.dumps(self._respond(self.token_requests[-1])).encode()
            )
            return
        status, body = (503, b"") if self.unreachable else self._document(scope["path"])
        await send_response(send, status, "application/json", body)

    def _respond(self, request: dict[str, str]) -> dict[str, Any]:
        """The token endpoint for client credentials: a token for the requested resource and scopes."""
        token = self.sign_token(aud=request["resource"], scope=request["scope"])
        return {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": LIFETIME_SECONDS,
            "scope": request["scope"],
        }

    def _document(self, path: str) -> tuple[int, bytes]:
        if path in self.documents:
            return self.documents[path]
        if path == self.discovery_path:
            base = self.url.rstrip("/")
            endpoints = {f"{name}_endpoint": f"{base}/{name}" for name in ("authorization", "token")}
            document = {"issuer": self.url, "jwks_uri": f"{base}/keys", **endpoints, **self.published}
            return 200, json.dumps(document).encode()
        if path == "/keys":
            return 200, json.dumps({"keys": [key.as_dict(private=False) for key in self.keys]}).encode()
        return 404, b"{}"

    def sign_token(
        self, *, key: Key = EC_KEY, algorithm: str | None = None, header: dict[str, Any] | None = None, **claims: Any
    ) -> str:
        """A token of this issuer. Claims and header members that are None are omitted."""
        now = int(self.clock.now().timestamp())
        said = {
            "iss": self.url,
            "sub": "ada",
            "iat": now,
            "exp": now + LIFETIME_SECONDS,
            "client_id": "agent",
            **claims,
        }
        alg = algorithm or {"RSA": "RS256", "EC": "ES256", "OKP": "EdDSA"}[key.key_type]
        top = {"alg": alg, "kid": key.kid, "typ": "at+jwt", **(header or {})}
        with warnings.catch_warnings(category=SecurityWarning, action="ignore"):  # of `EdDSA`, the older name
            return jwt.encode(_without_none(top), _without_none(said), key, algorithms=[alg], default_type=None)


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
