"""The issuer's keys, as it publishes them: discovery document (OpenID Connect Discovery 1.0 §4, RFC 8414 §3) and key set.

They are fetched when the first token comes, and again when they have grown old or a token names a key that is not among them.
However many tokens wait, one fetch is under way; however many strangers make up key names, the issuer is asked once in
`REFETCH_SECONDS`. While it cannot be asked, the last keys are good for `STALE_SECONDS_MAX`: an issuer that is down must not
take us down too, and a key that it withdrew meanwhile must not be good for ever.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key, KeySet

from ringback.domain.clock import Clock
from ringback.domain.errors import IssuerUnavailable
from ringback.identity.documents import NoDocument, fetch

log = logging.getLogger(__name__)

FRESH_SECONDS: Final = 600.0
"""How long keys are used before they are fetched again: by then a withdrawn key is refused."""
STALE_SECONDS_MAX: Final = 24 * 3600.0
"""How long they live when the issuer cannot be asked: issuers announce a rotation at least a day ahead."""
REFETCH_SECONDS: Final = 10.0
"""Between two fetches, whether they worked or not."""
KEYS_MAX: Final = 64
"""Of one set. Issuers publish two to five."""

_KEY_TYPES: Final = frozenset({"RSA", "EC", "OKP"})
"""Asymmetric ones: a symmetric key in a public document would be nobody's secret."""
_MODULUS_LENGTH_MIN: Final = 342
"""Characters of base64url in a modulus of 2,048 bits, the least that RFC 7518 §3.3 allows."""


class Issuer:
    def __init__(self, url: str, *, http: httpx.AsyncClient, clock: Clock) -> None:
        self.url = url
        self._http = http
        self._clock = clock
        self._keys: KeySet | None = None
        self._fetched_at = 0.0
        self._tried_at: float | None = None
        self._lock = asyncio.Lock()

    async def keys(self) -> KeySet:
        """The keys to check a token with; raises `IssuerUnavailable` when there are none, or only ones that are too old."""
        if not self._younger_than(FRESH_SECONDS) and not (self._lock.locked() and self._usable()):
            await self._renew()
        return self._current()

    async def keys_anew(self) -> KeySet:
        """The same for a token whose key is not among them: fetched again, unless that was done just now."""
        await self._renew()
        return self._current()

    def _current(self) -> KeySet:
        if self._keys is None or not self._usable():
            raise IssuerUnavailable(
                f"Access tokens cannot be checked now: the keys of {self.url} could not be fetched. Try again, or use an "
                "API key."
            )
        return self._keys

    def _usable(self) -> bool:
        return self._younger_than(STALE_SECONDS_MAX)

    def _younger_than(self, seconds: float) -> bool:
        return self._keys is not None and self._clock.monotonic() - self._fetched_at < seconds

    async def _renew(self) -> None:
        async with self._lock:
            now = self._clock.monotonic()
            if self._tried_at is not None and now - self._tried_at < REFETCH_SECONDS:
                return
            try:
                self._keys = await fetch_keys(self._http, self.url)
                self._fetched_at = now
            except NoDocument as problem:
                log.warning("issuer.unavailable", extra={"issuer": self.url, "reason": str(problem)})
            self._tried_at = self._clock.monotonic()


async def fetch_keys(http: httpx.AsyncClient, issuer: str) -> KeySet:
    """The keys that the issuer publishes now; raises `NoDocument`."""
    found = await fetch(http, await _find_key_set(http, issuer))
    keys = _usable_keys((found or {}).get("keys"))
    if not keys:
        raise NoDocument("Its key set holds no key to check signatures with.")
    return KeySet(keys)


async def _find_key_set(http: httpx.AsyncClient, issuer: str) -> str:
    for url in discovery_urls(issuer):
        if (document := await fetch(http, url)) is not None:
            return _key_set_url(document, issuer=issuer)
    raise NoDocument("It has no discovery document.")


def discovery_urls(issuer: str) -> tuple[str, str]:
    """Where an issuer's metadata may be: after its whole URL (OpenID Connect), or between host and path (RFC 8414 §3.1)."""
    parts = urlsplit(issuer)
    return (
        f"{issuer.rstrip('/')}/.well-known/openid-configuration",
        f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{parts.path.rstrip('/')}",
    )


def _key_set_url(document: Mapping[str, Any], *, issuer: str) -> str:
    """Raises `NoDocument` unless the document speaks for this very issuer (RFC 8414 §3.3), character by character."""
    if document.get("issuer") != issuer:
        raise NoDocument("Its discovery document names another issuer.")
    url = document.get("jwks_uri")
    if not isinstance(url, str):
        raise NoDocument("Its discovery document has no jwks_uri.")
    return url


def _usable_keys(entries: Any) -> list[Key]:
    """The keys that signatures can be checked with; the others are passed over (RFC 7517 §5)."""
    if not isinstance(entries, list):
        return []
    found = (_import(entry) for entry in cast("list[Any]", entries)[:KEYS_MAX])
    return [key for key in found if key is not None]


def _import(entry: Any) -> Key | None:
    match entry:
        case {"use": "enc"}:
            return None
        case {"kty": "RSA", "n": str() as modulus} if len(modulus) < _MODULUS_LENGTH_MIN:
            return None
        case {"kty": str() as kind} if kind in _KEY_TYPES:
            pass
        case _:
            return None
    try:
        return JWKRegistry.import_key(cast("dict[str, Any]", entry))
    except (JoseError, ValueError, TypeError):
        return None
