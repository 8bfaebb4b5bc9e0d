"""Access tokens by the client_credentials grant (RFC 6749 §4.4): the cached token, or one fetch for all waiting requests.

Tokens are kept only in memory.
"""

import math
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import quote

import anyio
import httpx2

from ringback import __version__
from ringback.domain import jsontext
from ringback.domain.clock import Clock
from ringback.notifier.configured_hosts import LookUp
from ringback.notifier.http.authorities import USUAL_AUTHORITIES, TrustedAuthorities
from ringback.protocol.errors import CredentialsRejected, RequestFailed, RequestNotSent, TokenUnavailable
from ringback.upstreams.config import AuthMethod, ClientCredentials
from ringback.upstreams.oauth.challenge import Refusal
from ringback.upstreams.oauth.followed_login import FollowedLogin
from ringback.upstreams.oauth.token_responses import (
    ACCESS_TOKEN,
    REFUSING_STATUSES,
    find_error_code,
    is_bearer,
    is_token,
    parse_lifetime,
)
from ringback.upstreams.oauth.token_source import OnWait
from ringback.upstreams.oauth.token_validity import get_margin_seconds
from ringback.upstreams.transports.http_pool import PooledHttpTransport, ssl_context

FETCH_TIMEOUT_SECONDS: Final = 10.0
"""For the whole response. The same as the connect timeout of an upstream."""
RETRY_SECONDS: Final = 5.0
"""After a failed fetch, requests do not try again for this long: an authorization server that is down, or restarts, would get
as many token requests as its upstream gets calls."""
REFUSED_AGE_SECONDS: Final = 5.0
"""A younger token is not replaced because one request gets 401: a tool that always answers so would cause a token request for
each of its calls."""
RESPONSE_BYTES_MAX: Final = 64 * 1024
"""A token has one or two kilobytes, with many groups ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _AccessToken:
    text: str = field(repr=False)
    requested_at: float
    fresh_until: float
    expires_at: float
    """All by `Clock.monotonic`."""


class ClientCredentialsTokens:
    """Implements `TokenSource`: fetches and caches the token of one upstream, for all its connections."""

    def __init__(
        self,
        credentials: ClientCredentials,
        *,
        clock: Clock,
        look_up: LookUp,
        authorities: TrustedAuthorities = USUAL_AUTHORITIES,
    ) -> None:
        self._credentials = credentials
        self._look_up = look_up
        self._authorities = authorities
        self._clock = clock
        self.login = FollowedLogin()
        self._lock = anyio.Lock()
        self._token: _AccessToken | None = None
        self._failure: RequestFailed | None = None
        """Of the last fetch; None if it succeeded."""
        self._failed_until = 0.0

    async def get_token(
        self,
        *,
        other_than: str | None = None,
        refusal: Refusal | None = None,
        on_wait: OnWait | None = None,
    ) -> str:
        """Return a valid token other than the given one, or that one if it is not replaced because of this refusal.

        Raises `CredentialsRejected` or `TokenUnavailable`.
        """
        if other_than is not None and self._keeps_refused(other_than, refusal):
            return other_than
        if not self._lock.locked() and (token := self._find_usable(other_than)) is not None:
            return token
        if on_wait is not None:  # also if another request fetches: the wait for it is as long
            await on_wait()
        async with self._lock:
            if (token := self._find_usable(other_than)) is not None:
                return token
            try:
                self._token, self._failure = await self._fetch_token(), None
            except RequestFailed as failure:
                self._failure, self._failed_until = failure, self._clock.monotonic() + RETRY_SECONDS
                return self._get_last_token(self._find_token(other_than), failure)
            return self._token.text

    def _keeps_refused(self, refused: str, refusal: Refusal | None) -> bool:
        if self._token is None or self._token.text != refused or refusal is None or refusal.rejects_token:
            return False
        return self._clock.monotonic() < min(self._token.requested_at + REFUSED_AGE_SECONDS, self._token.expires_at)

    def _find_usable(self, other_than: str | None) -> str | None:
        """The token at hand; None if another one is to be fetched now. Raises the failure of a fetch a moment ago."""
        at_hand = self._find_token(other_than)
        if at_hand is not None and self._is_fresh(at_hand):
            return at_hand.text
        if self._failure is None or self._clock.monotonic() >= self._failed_until:
            return None
        return self._get_last_token(at_hand, self._failure)

    def _get_last_token(self, at_hand: _AccessToken | None, failure: RequestFailed) -> str:
        """The token that is valid for a moment more; raises the failure without one."""
        if at_hand is not None and self._clock.monotonic() < at_hand.expires_at:
            return at_hand.text
        raise type(failure)(str(failure))  # each request raises an error of its own

    def _find_token(self, other_than: str | None) -> _AccessToken | None:
        return None if self._token is None or self._token.text == other_than else self._token

    def _is_fresh(self, token: _AccessToken) -> bool:
        return self._clock.monotonic() < token.fresh_until

    async def explain_refusal(self, refusal: Refusal, *, token: str | None) -> RequestNotSent | None:  # noqa: ARG002 - the port's names
        return None

    async def check_login(self) -> None:
        """The login is that of the configuration."""

    @property
    def version(self) -> int | None:
        return None

    async def read_version(self) -> int | None:
        return None

    async def wait_changed(self) -> None:
        await anyio.sleep_forever()

    async def aclose(self) -> None:
        pass

    async def _fetch_token(self) -> _AccessToken:
        requested_at = self._clock.monotonic()
        try:
            with anyio.fail_after(FETCH_TIMEOUT_SECONDS):
                status, body = await self._post_form()
        except (TimeoutError, httpx2.HTTPError) as error:
            raise TokenUnavailable(
                f"The authorization server could not be asked for a token ({type(error).__name__})."
            ) from None
        if status in REFUSING_STATUSES:
            reason = find_error_code(_parse_object(body))
            reason_text = "" if reason is None else f": {reason}"
            raise CredentialsRejected(f"The authorization server refuses the configured client{reason_text}.")
        if status != HTTPStatus.OK or body is None:
            raise TokenUnavailable(
                f"The authorization server answered with HTTP {status}, or with too much, and with no token."
            )
        return _parse_token(_parse_object(body), requested_at=requested_at)

    async def _post_form(self) -> tuple[int, bytes | None]:
        """Send the token request; returns the status and the body, or None for a body above the limit."""
        form, headers = self._make_form()
        async with (
            httpx2.AsyncClient(
                transport=PooledHttpTransport(
                    ssl_context(self._credentials.token_url, self._authorities), look_up=self._look_up
                ),
                timeout=FETCH_TIMEOUT_SECONDS,
                trust_env=False,
            ) as http,
            http.stream("POST", self._credentials.token_url, data=form, headers=headers) as response,
        ):
            body = bytearray()
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > RESPONSE_BYTES_MAX:
                    return response.status_code, None
            return response.status_code, bytes(body)

    def _make_form(self) -> tuple[dict[str, str], dict[str, str]]:
        credentials = self._credentials
        form = {"grant_type": "client_credentials"}
        form |= {} if credentials.scope is None else {"scope": credentials.scope}
        form |= {} if credentials.resource is None else {"resource": credentials.resource}
        headers = {"user-agent": f"ringback/{__version__}", "accept": "application/json", "accept-encoding": "identity"}
        if credentials.auth_method is AuthMethod.POST:
            return form | {"client_id": credentials.client_id, "client_secret": credentials.client_secret}, headers
        pair = f"{quote(credentials.client_id, safe='')}:{quote(credentials.client_secret, safe='')}"
        return form, headers | {"authorization": f"Basic {b64encode(pair.encode()).decode()}"}


def _parse_object(body: bytes | None) -> Mapping[str, Any]:
    try:
        document = jsontext.loads(body or b"")
    except ValueError:
        return {}
    return cast("dict[str, Any]", document) if isinstance(document, dict) else {}


def _parse_token(answer: Mapping[str, Any], *, requested_at: float) -> _AccessToken:
    text = answer.get("access_token")
    if not is_token(text, ACCESS_TOKEN):
        raise TokenUnavailable("The authorization server answered without a usable access_token.")
    if not is_bearer(answer.get("token_type")):
        raise TokenUnavailable("The authorization server gave a token that is no Bearer token.")
    lifetime = parse_lifetime(answer.get("expires_in")) or math.inf
    fresh_until = requested_at + lifetime - get_margin_seconds(lifetime)
    return _AccessToken(
        text=text, requested_at=requested_at, fresh_until=fresh_until, expires_at=requested_at + lifetime
    )
