"""The cookies of viewers: the secret of a sign-in, or of a portal link. The store has their hashes.

A browser sends the cookie of a sign-in with requests from the dashboard's own pages, and with links from elsewhere (`Lax`). It
sends that of a portal link also from a frame of the product that embeds it (`None`), but only within that product
(`Partitioned`), and only to the pages of this link (`Path`): so frames of several links in one browser do not meet.
"""

import hmac
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response

_FORM_TOKEN_LABEL: Final = b"ringback form token"
PORTAL_COOKIES_READ: Final = 4
"""Of one request: each may cost a read of the store."""


class SecretCookie:
    """One cookie of the whole host. With an https URL, the prefix `__Host-` keeps other hosts from setting it."""

    def __init__(self, name: str, *, is_secure: bool) -> None:
        self.name = f"__Host-{name}" if is_secure else name
        self._is_secure = is_secure

    def set_secret(self, response: Response, secret: str, *, max_age_seconds: float) -> None:
        response.headers.append("set-cookie", self._build_header(secret, int(max_age_seconds)))

    def delete(self, response: Response) -> None:
        response.headers.append("set-cookie", self._build_header("", 0))

    def read_secret(self, cookies: Mapping[str, str]) -> str | None:
        return cookies.get(self.name) or None

    def _build_header(self, value: str, max_age_seconds: int) -> str:
        attributes = [f"{self.name}={value}", f"Max-Age={max_age_seconds}", "Path=/", "HttpOnly"]
        attributes += ["Secure", "SameSite=Lax"] if self._is_secure else ["SameSite=Lax"]
        return "; ".join(attributes)


class PortalCookie:
    """The cookie of each portal link, below the path of the link's pages.

    `__Host-` allows no path, so another host of the site could set this cookie too, and the browser sends both. The secret in
    one of them must be that of the link whose page is asked for (`Viewers`): another one shows nothing, and hides nothing.
    """

    def __init__(self, *, is_secure: bool, portal_path: str) -> None:
        """`portal_path`: as browsers see it, with the path of the public URL. Without https, no frame gets the cookie."""
        self.name = "__Secure-ringback-portal" if is_secure else "ringback-portal"
        self._is_secure = is_secure
        self._portal_path = portal_path

    def set_secret(self, response: Response, link_id: str, secret: str, *, max_age_seconds: float) -> None:
        response.headers.append("set-cookie", self._build_header(link_id, secret, int(max_age_seconds)))

    def delete(self, response: Response, link_id: str) -> None:
        response.headers.append("set-cookie", self._build_header(link_id, "", 0))

    def read_secrets(self, headers: Headers) -> Sequence[str]:
        """The values of the first cookies of this name. A browser sends that of the longest path first."""
        pairs = (pair.partition("=") for header in headers.getlist("cookie") for pair in header.split(";"))
        values = dict.fromkeys(value.strip() for name, _, value in pairs if name.strip() == self.name)
        return [value for value in values if value][:PORTAL_COOKIES_READ]

    def _build_header(self, link_id: str, value: str, max_age_seconds: int) -> str:
        """As text: Python's cookies know `Partitioned` from 3.14 on."""
        path = f"{self._portal_path}/{link_id}"
        attributes = [f"{self.name}={value}", f"Max-Age={max_age_seconds}", f"Path={path}", "HttpOnly"]
        attributes += ["Secure", "SameSite=None", "Partitioned"] if self._is_secure else ["SameSite=Lax"]
        return "; ".join(attributes)


class ViewerCookies:
    def __init__(self, *, is_secure: bool, portal_path: str) -> None:
        """`is_secure`: browsers reach the dashboard over https."""
        self.sign_in = SecretCookie("ringback-viewer", is_secure=is_secure)
        self.portal = PortalCookie(is_secure=is_secure, portal_path=portal_path)


def derive_form_token(secret: str) -> str:
    """The form token of a sign-in. Only pages for this browser have it, and it ends with the sign-in."""
    return urlsafe_b64encode(hmac.digest(secret.encode(), _FORM_TOKEN_LABEL, "sha256")).decode().rstrip("=")
