"""The issuer's published keys: discovery document (OpenID Connect Discovery 1.0 §4, RFC 8414 §3) and key set.

The keys are fetched for the first token, again after `KEYS_MAX_AGE_SECONDS`, and when a token names an unknown key. All waiting
tokens share one fetch. Tokens with invented key names cause at most one fetch in `REFETCH_INTERVAL_SECONDS`. While the issuer
is unreachable, the last keys stay valid for `STALE_KEYS_SECONDS_MAX`: an outage of the issuer does not stop the service, and a
key withdrawn during the outage does not stay valid for ever.
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
from ringback.identity.issuer_documents import IssuerDocumentError, fetch_json_object

log = logging.getLogger(__name__)

KEYS_MAX_AGE_SECONDS: Final = 600.0
"""Keys are fetched again after this time. A withdrawn key stays valid for as long."""
STALE_KEYS_SECONDS_MAX: Final = 24 * 3600.0
"""How long keys stay valid while the issuer is unreachable. Issuers announce a rotation at least a day ahead."""
REFETCH_INTERVAL_SECONDS: Final = 10.0
"""Between two fetches, successful or not."""
ISSUER_KEYS_MAX: Final = 64
"""Keys read from one set. Issuers publish two to five."""

_KEY_TYPES: Final = frozenset({"RSA", "EC", "OKP"})
"""Asymmetric key types: a symmetric key in a public document would be no secret."""
_RSA_MODULUS_LENGTH_MIN: Final = 342
"""Characters of base64url in a modulus of 2,048 bits, the least that RFC 7518 §3.3 allows."""


class IssuerKeys:
    def __init__(self, url: str, *, http: httpx.AsyncClient, clock: Clock) -> None:
        self.url = url
        self._http = http
        self._clock = clock
        self._keys: KeySet | None = None
        self._fetched_at = 0.0
        self._last_fetch_at: float | None = None
        self._lock = asyncio.Lock()

    async def get_keys(self) -> KeySet:
        """The current keys; raises `IssuerUnavailable` if there are none or they are too old."""
        if not self._is_younger_than(KEYS_MAX_AGE_SECONDS) and not (self._lock.locked() and self._has_usable_keys()):
            await self._refetch_unless_recent()
        return self._require_keys()

    async def refetch_keys(self) -> KeySet:
        """The keys for a token that names an unknown key: fetched again, unless the last fetch was just now."""
        await self._refetch_unless_recent()
        return self._require_keys()

    def _require_keys(self) -> KeySet:
        if self._keys is None or not self._has_usable_keys():
            raise IssuerUnavailable(
                f"Access tokens cannot be verified now: the keys of {self.url} could not be fetched. Try again, or use an API "
                "key."
            )
        return self._keys

    def _has_usable_keys(self) -> bool:
        return self._is_younger_than(STALE_KEYS_SECONDS_MAX)

    def _is_younger_than(self, seconds: float) -> bool:
        return self._keys is not None and self._clock.monotonic() - self._fetched_at < seconds

    async def _refetch_unless_recent(self) -> None:
        async with self._lock:
            now = self._clock.monotonic()
            if self._last_fetch_at is not None and now - self._last_fetch_at < REFETCH_INTERVAL_SECONDS:
                return
            try:
                self._keys = await fetch_issuer_keys(self._http, self.url)
                self._fetched_at = now
            except IssuerDocumentError as problem:
                log.warning("issuer.unavailable", extra={"issuer": self.url, "reason": str(problem)})
            self._last_fetch_at = self._clock.monotonic()


async def fetch_issuer_keys(http: httpx.AsyncClient, issuer: str) -> KeySet:
    """Fetch the issuer's keys; raises `IssuerDocumentError`."""
    found = await fetch_json_object(http, await _discover_key_set_url(http, issuer))
    keys = _import_keys((found or {}).get("keys"))
    if not keys:
        raise IssuerDocumentError("Its key set has no key that verifies signatures.")
    return KeySet(keys)


async def _discover_key_set_url(http: httpx.AsyncClient, issuer: str) -> str:
    for url in discovery_urls(issuer):
        if (document := await fetch_json_object(http, url)) is not None:
            return _key_set_url(document, issuer=issuer)
    raise IssuerDocumentError("It has no discovery document.")


def discovery_urls(issuer: str) -> tuple[str, str]:
    """The possible URLs of an issuer's metadata: after its URL (OpenID Connect), or between host and path (RFC 8414 §3.1)."""
    split_url = urlsplit(issuer)
    return (
        f"{issuer.rstrip('/')}/.well-known/openid-configuration",
        f"{split_url.scheme}://{split_url.netloc}/.well-known/oauth-authorization-server{split_url.path.rstrip('/')}",
    )


def _key_set_url(document: Mapping[str, Any], *, issuer: str) -> str:
    """The key set's URL; raises `IssuerDocumentError` unless the document names exactly this issuer (RFC 8414 §3.3)."""
    if document.get("issuer") != issuer:
        raise IssuerDocumentError("Its discovery document names another issuer.")
    url = document.get("jwks_uri")
    if not isinstance(url, str):
        raise IssuerDocumentError("Its discovery document has no jwks_uri.")
    return url


def _import_keys(entries: Any) -> list[Key]:
    """The keys that verify signatures. Others are ignored (RFC 7517 §5)."""
    if not isinstance(entries, list):
        return []
    found = (_import_key(entry) for entry in cast("list[Any]", entries)[:ISSUER_KEYS_MAX])
    return [key for key in found if key is not None]


def _import_key(entry: Any) -> Key | None:
    match entry:
        case {"use": "enc"}:
            return None
        case {"kty": "RSA", "n": str() as modulus} if len(modulus) < _RSA_MODULUS_LENGTH_MIN:
            return None
        case {"kty": str() as kind} if kind in _KEY_TYPES:
            pass
        case _:
            return None
    try:
        return JWKRegistry.import_key(cast("dict[str, Any]", entry))
    except (JoseError, ValueError, TypeError, KeyError):  # joserfc raises KeyError for a curve that it does not know
        return None
