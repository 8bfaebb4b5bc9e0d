"""Sign-in of people at the issuer of access tokens: authorization code with PKCE (RFC 6749 §4.1, RFC 7636, RFC 8707, RFC 9207).

    begin      discovery document ──▶ URL of the issuer's page, and the secrets that stay in the person's browser
    complete   the redirect back, judged by these secrets ──▶ code and verifier ──▶ an access token for this service

The token is judged as every other one (`access_tokens`). No ID token is used, so no `nonce` is sent: some issuers copy it into
the access token, which would then look like an ID token. The verifier binds the code to the browser.
"""

import asyncio
import hashlib
import hmac
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import quote, urlencode, urlsplit

import httpx

from ringback.domain import jsontext
from ringback.domain.clock import Clock
from ringback.domain.errors import Forbidden, IssuerUnavailable, Unauthenticated
from ringback.domain.principal import DEFAULT_SCOPES, Scope
from ringback.domain.protected_resource import SCOPE_PREFIX
from ringback.identity.access_tokens import TOKEN_LENGTH_MAX
from ringback.identity.issuer import discovery_urls
from ringback.identity.issuer_documents import (
    FETCH_TIMEOUT_SECONDS,
    IssuerDocumentError,
    fetch_json_object,
    is_trusted_url,
    read_json_response,
)

METADATA_MAX_AGE_SECONDS: Final = 600.0
"""The issuer's discovery document is fetched again after this time."""
PARAMETER_LENGTH_MAX: Final = 4_096
"""Characters of the code and of the state that come back."""
_SECRET_BYTES: Final = 32
_OPENID: Final = "openid"


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInClient:
    """How this service is registered at the issuer."""

    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    redirect_uri: str
    resource: str
    """What the access token is for."""
    requests_scopes: bool = True
    """Whether the issuer knows Ringback's scopes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunSignIn:
    """What stays in the browser, sealed, until the issuer sends it back."""

    state: str = field(repr=False)
    verifier: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Endpoints:
    authorization: str
    token: str
    scopes: frozenset[str]


class IssuerSignIn:
    def __init__(
        self,
        issuer: str,
        client: SignInClient,
        *,
        http: httpx.AsyncClient,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.issuer = issuer
        self._client = client
        self._http = http
        self._clock = clock
        self._random_bytes = random_bytes
        self._endpoints: _Endpoints | None = None
        self._fetched_at = 0.0
        self._failures = 0
        self._lock = asyncio.Lock()

    async def begin(self) -> tuple[str, BegunSignIn]:
        """The URL of the issuer's page, and what the browser keeps. Raises `IssuerUnavailable`."""
        endpoints = await self._get_endpoints()
        begun = BegunSignIn(state=self._draw_secret(), verifier=self._draw_secret())
        challenge = hashlib.sha256(begun.verifier.encode()).digest()
        parameters = {
            "response_type": "code",
            "client_id": self._client.client_id,
            "redirect_uri": self._client.redirect_uri,
            "state": begun.state,
            "code_challenge": urlsafe_b64encode(challenge).decode().rstrip("="),
            "code_challenge_method": "S256",
            "resource": self._client.resource,
        }
        if scope := self._choose_scope(endpoints):
            parameters["scope"] = scope
        separator = "&" if urlsplit(endpoints.authorization).query else "?"
        return f"{endpoints.authorization}{separator}{urlencode(parameters)}", begun

    async def complete(self, begun: BegunSignIn, redirect: Mapping[str, str]) -> str:
        """The access token of a sign-in that began in this browser. `redirect` is the query of the redirect back.

        Raises `Forbidden` if the redirect belongs to another sign-in or the issuer refuses, and `IssuerUnavailable`.
        """
        state, code = redirect.get("state", ""), redirect.get("code", "")
        if not hmac.compare_digest(state.encode(), begun.state.encode()):
            raise Forbidden("This sign-in did not begin in this browser, or it was finished before. Sign in again.")
        if redirect.get("iss", self.issuer) != self.issuer:
            raise Forbidden("Another issuer answered. Sign in again.")
        if not 0 < len(code) <= PARAMETER_LENGTH_MAX or "error" in redirect:
            raise Forbidden("The issuer refused the sign-in. Sign in again, or ask the operator for access.")
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._client.redirect_uri,
            "code_verifier": begun.verifier,
            "resource": self._client.resource,
            "client_id": self._client.client_id,
        }
        return _read_token(await self._request_token((await self._get_endpoints()).token, form))

    async def _request_token(self, url: str, form: Mapping[str, str]) -> Mapping[str, Any]:
        try:
            async with (
                asyncio.timeout(FETCH_TIMEOUT_SECONDS),
                self._http.stream("POST", url, data=dict(form), headers=self._authenticate()) as response,
            ):
                if HTTPStatus.BAD_REQUEST <= response.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise Forbidden("The issuer refused the sign-in. Sign in again.")
                if response.status_code != HTTPStatus.OK:
                    raise self._unavailable()
                return await read_json_response(response)
        except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, IssuerDocumentError):
            raise self._unavailable() from None

    def _authenticate(self) -> dict[str, str]:
        """RFC 6749 §2.3.1."""
        if self._client.client_secret is None:
            return {}
        pair = f"{quote(self._client.client_id, safe='')}:{quote(self._client.client_secret, safe='')}"
        return {"authorization": f"Basic {b64encode(pair.encode()).decode()}"}

    async def _get_endpoints(self) -> _Endpoints:
        failures = self._failures
        async with self._lock:  # all that wait share one fetch, also one that fails
            now = self._clock.monotonic()
            if self._endpoints is None or now - self._fetched_at >= METADATA_MAX_AGE_SECONDS:
                if self._failures != failures:
                    raise self._unavailable()
                self._endpoints, self._fetched_at = await self._fetch_endpoints(), now
            return self._endpoints

    async def _fetch_endpoints(self) -> _Endpoints:
        try:
            for url in discovery_urls(self.issuer):
                if (document := await fetch_json_object(self._http, url)) is not None:
                    return self._read_endpoints(document)
        except (IssuerDocumentError, IssuerUnavailable):
            pass
        self._failures += 1
        raise self._unavailable()

    def _read_endpoints(self, document: Mapping[str, Any]) -> _Endpoints:
        urls = [document.get(f"{name}_endpoint") for name in ("authorization", "token")]
        trusted = [url for url in urls if isinstance(url, str) and is_trusted_url(url)]
        if document.get("issuer") != self.issuer or len(trusted) != len(urls):
            raise self._unavailable()
        known = document.get("scopes_supported")
        listed = cast("list[Any]", known) if isinstance(known, list) else []
        scopes = frozenset(each for each in listed if isinstance(each, str))
        return _Endpoints(authorization=trusted[0], token=trusted[1], scopes=scopes)

    def _choose_scope(self, endpoints: _Endpoints) -> str:
        """Ringback's scopes that the issuer lists, or the usual ones if it lists none; and `openid` if it lists that."""
        own = {f"{SCOPE_PREFIX}{scope}" for scope in Scope} & endpoints.scopes
        if not own and self._client.requests_scopes:
            own = {f"{SCOPE_PREFIX}{scope}" for scope in DEFAULT_SCOPES}
        return " ".join([*([_OPENID] if _OPENID in endpoints.scopes else []), *sorted(own)])

    def _draw_secret(self) -> str:
        return urlsafe_b64encode(self._random_bytes(_SECRET_BYTES)).decode().rstrip("=")

    def _unavailable(self) -> IssuerUnavailable:
        return IssuerUnavailable(
            f"Signing in with {urlsplit(self.issuer).netloc} does not work now: it did not answer as it should. Try again, or "
            "use an API key."
        )


def _read_token(document: Mapping[str, Any]) -> str:
    token, kind = document.get("access_token"), document.get("token_type")
    if not isinstance(token, str) or not isinstance(kind, str) or kind.lower() != "bearer":
        raise Forbidden("The issuer gave no access token. Ask the operator for access.")
    if len(token) > TOKEN_LENGTH_MAX:
        raise Forbidden("The issuer's access token is too long.")
    return token


def read_expiry(verified_token: str) -> datetime:
    """When an access token expires that `AccessTokenAuthenticator` has accepted."""
    payload = verified_token.split(".")[1]
    try:
        claims: Any = jsontext.loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return datetime.fromtimestamp(float(claims["exp"]), UTC)
    except (ValueError, TypeError, KeyError, OverflowError):
        raise Unauthenticated("This access token has no readable expiry.") from None
