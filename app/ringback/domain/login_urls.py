"""URLs of logins to upstreams: Ringback's own pages, and the redirect URIs to which a browser may come back.

Each upstream has a redirect URI and a client id of its own. An authorization server of one upstream could send a browser on to
that of another one, whose code would then arrive as its own; here it arrives at the redirect URI of the other upstream, and is
refused (RFC 9700 §4.4.2). Servers that name themselves in the redirect (RFC 9207) are distinguished in any case.
"""

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from ringback.protocol.upstream_logins import LOOPBACK_CALLBACK_PATH

LOGIN_PATH: Final = "/login"
CALLBACK_SEGMENT: Final = "callback"
CLIENT_METADATA_SEGMENT: Final = "client.json"
"""No name of an upstream has a dot."""
REDIRECT_URI_LENGTH_MAX: Final = 2048
_LOOPBACK_HOSTS: Final = frozenset({"127.0.0.1", "::1", "localhost"})
"""RFC 8252 §7.3, and the name that native clients use although §8.3 prefers the addresses."""


def login_page_url(public_url: str, upstream: str) -> str:
    """The page on which a person signs in to an upstream. It contains no secret."""
    return f"{public_url}{LOGIN_PATH}/{upstream}"


def login_callback_url(public_url: str, upstream: str) -> str:
    """The redirect URI of Ringback's own page."""
    return f"{public_url}{LOGIN_PATH}/{CALLBACK_SEGMENT}/{upstream}"


def client_metadata_url(public_url: str, upstream: str) -> str:
    """Ringback's client id metadata document for an upstream. It is a client id only if the URL is https."""
    return f"{login_page_url(public_url, upstream)}/{CLIENT_METADATA_SEGMENT}"


def client_metadata_document(public_url: str, upstream: str, redirect_uris: Collection[str]) -> dict[str, object]:
    """The client id metadata document (draft-ietf-oauth-client-id-metadata-document §4.1).

    A redirect URI on loopback is listed without a port: an authorization server accepts any port there (RFC 8252 §7.3).
    """
    loopback = [f"http://{host}{LOOPBACK_CALLBACK_PATH}/{upstream}" for host in ("127.0.0.1", "[::1]")]
    return {
        "client_id": client_metadata_url(public_url, upstream),
        "client_name": "Ringback",
        "client_uri": public_url,
        "redirect_uris": [
            login_callback_url(public_url, upstream),
            *fill_placeholders(redirect_uris, upstream),
            *loopback,
        ],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }


def fill_placeholders(redirect_urls: Collection[str], upstream: str) -> list[str]:
    return [url.replace(UPSTREAM_PLACEHOLDER, upstream) for url in redirect_urls]


def is_loopback_redirect(redirect_uri: str) -> bool:
    """Whether the URI is a listener of a program on the user's own machine, on any port (RFC 8252 §7.3)."""
    try:
        url = urlsplit(redirect_uri)
        port = url.port
    except ValueError:
        return False
    return (
        url.scheme == "http"
        and url.hostname in _LOOPBACK_HOSTS
        and port is not None
        and "@" not in url.netloc
        and not url.query
        and "#" not in redirect_uri
    )


UPSTREAM_PLACEHOLDER: Final = "{upstream}"
"""In a configured redirect URL: the name of the upstream, so that each has a redirect URI of its own."""


def is_allowed_redirect(redirect_uri: str, *, upstream: str, public_url: str, configured: Collection[str]) -> bool:
    """Whether a login may send a browser there: loopback, Ringback's own page, or exactly a configured URL.

    In a configured URL, `{upstream}` stands for the name.
    """
    if not redirect_uri.isascii() or not redirect_uri.isprintable() or len(redirect_uri) > REDIRECT_URI_LENGTH_MAX:
        return False
    return (
        redirect_uri == login_callback_url(public_url, upstream)
        or redirect_uri in fill_placeholders(configured, upstream)
        or is_loopback_redirect(redirect_uri)
    )
