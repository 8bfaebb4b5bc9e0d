"""Forms that browsers send: bounded before they are parsed, from a page of this service only, with few wrong keys a minute."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request

from ringback.api.middleware import is_same_loopback_origin, read_origin
from ringback.domain.client_address import identify_peer
from ringback.domain.clock import Clock
from ringback.domain.errors import InvalidRequest, QuotaExceeded, Unauthenticated
from ringback.domain.principal import Authenticator, Caller
from ringback.domain.protected_resource import REST_RESOURCE
from ringback.domain.rate_limiter import RateLimit, RateLimiter

KEY_FORM_BYTES_MAX: Final = 32 * 1024
"""A key has some fifty characters, an access token some thousand."""
KEY_FORM_FIELDS_MAX: Final = 10
WRONG_KEY_RATE: Final = RateLimit(per_second=10 / 60, burst=10)
"""Wrong keys of one address (IPv6: one /64). A key has 192 random bits, so the limit only keeps the log readable."""


def is_own_form(request: Request, public_url: str) -> bool:
    """Whether a browser sent the form from a page of this service.

    A form of another site could act as its victim. A browser decides by its own name of the host, which proxies replace in the
    header Host: so it is the public URL, or the loopback address at which the browser reached this service directly.
    """
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin, host = request.headers.get("origin", ""), request.headers.get("host", "")
    return site == "same-origin" and (origin == read_origin(public_url) or is_same_loopback_origin(origin, host))


async def read_form_fields(
    request: Request, *, fields_max: int, bytes_max: int | None = None
) -> Mapping[str, list[str]]:
    """The fields of a form. Raises `InvalidRequest` for one that is too large or no form.

    Without `bytes_max`, only the middleware bounds the body (RINGBACK_REQUEST_BYTES_MAX).
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if bytes_max is not None and len(body) > bytes_max:
            raise InvalidRequest("The form is too large.")
    try:
        return parse_qs(body.decode("utf-8"), keep_blank_values=True, max_num_fields=fields_max)
    except ValueError:
        raise InvalidRequest("The form cannot be read. Open the page again and repeat it.") from None


class KeyAttemptLimiter:
    """Authenticates the keys that people enter in forms, and limits the wrong ones of each address."""

    def __init__(self, authenticator: Authenticator, *, clock: Clock) -> None:
        self._authenticator = authenticator
        self._clock = clock
        self._wrong_keys: RateLimiter[str] = RateLimiter()

    async def authenticate(self, request: Request, key: str | None) -> Caller:
        """The caller with this key. Raises `Unauthenticated`, or `QuotaExceeded` after too many wrong keys.

        A key that the store or the issuer cannot judge during an outage is not counted.
        """
        now, peer = self._clock.monotonic(), identify_browser(request)
        bucket = self._wrong_keys.get_bucket(peer, WRONG_KEY_RATE, now=now)
        if not bucket.try_acquire(now):
            raise QuotaExceeded(
                "Many wrong keys came from your address, so no key is looked at for a moment. Wait a minute.",
                retry_after_seconds=1 + int(bucket.wait_seconds(now)),
            )
        is_wrong = False
        try:
            return await self._authenticator.authenticate(key, resource=REST_RESOURCE)
        except Unauthenticated:
            is_wrong = True
            raise
        finally:
            if not is_wrong:
                self._wrong_keys.refund_permit(peer)


def identify_browser(request: Request) -> str:
    """Whose requests are counted together: an address, or a /64 of IPv6."""
    host = request.client.host if request.client is not None else ""
    try:
        return identify_peer(ip_address(host))
    except ValueError:
        return host
