"""The cookies of viewers: the secret of a sign-in, or of a portal link. The store has their hashes.

A browser sends the cookie of a sign-in with requests from the dashboard's own pages, and with links from elsewhere (`Lax`). It
sends that of a portal link also from a frame of the product that embeds it (`None`), but only within that product
(`Partitioned`).
"""

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

_FORM_TOKEN_LABEL: Final = b"ringback form token"


class SecretCookie:
    """One cookie. With an https URL, the prefix `__Host-` keeps other hosts from setting it."""

    def __init__(self, name: str, *, is_secure: bool, is_embedded: bool = False) -> None:
        """`is_embedded`: browsers send it from frames of other sites, too. That needs https; over http it is as the other."""
        self.name = f"__Host-{name}" if is_secure else name
        self._is_secure = is_secure
        self._is_embedded = is_embedded and is_secure

    def set_secret(self, response: Response, secret: str, *, max_age_seconds: float) -> None:
        response.headers.append("set-cookie", self._build_header(secret, int(max_age_seconds)))

    def delete(self, response: Response) -> None:
        response.headers.append("set-cookie", self._build_header("", 0))

    def read_secret(self, cookies: Mapping[str, str]) -> str | None:
        return cookies.get(self.name) or None

    def _build_header(self, value: str, max_age_seconds: int) -> str:
        """As text: Python's cookies know `Partitioned` from 3.14 on."""
        attributes = [f"{self.name}={value}", f"Max-Age={max_age_seconds}", "Path=/", "HttpOnly"]
        if self._is_secure:
            attributes.append("Secure")
        attributes += ["SameSite=None", "Partitioned"] if self._is_embedded else ["SameSite=Lax"]
        return "; ".join(attributes)


class ViewerCookies:
    def __init__(self, *, is_secure: bool) -> None:
        """`is_secure`: browsers reach the dashboard over https."""
        self.sign_in = SecretCookie("ringback-viewer", is_secure=is_secure)
        self.portal = SecretCookie("ringback-portal", is_secure=is_secure, is_embedded=True)


def derive_form_token(secret: str) -> str:
    """The form token of a sign-in. Only pages for this browser have it, and it ends with the sign-in."""
    return urlsafe_b64encode(hmac.digest(secret.encode(), _FORM_TOKEN_LABEL, "sha256")).decode().rstrip("=")
