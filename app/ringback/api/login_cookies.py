"""The cookies that bind a login to the browser in which it began.

A cookie has the id of the login, sealed: only this service makes one, for the browser in which the login began. Its name has
the name of the upstream, so that logins to several upstreams may be open in one browser.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from ringback.domain.encryption import Sealer
from ringback.domain.ids import LoginId
from ringback.services.logins.upstream_logins import LOGIN_SECONDS
from ringback.signing.sealing import UnsealError

COOKIES_MAX: Final = 20
"""Cookies that are unsealed for one request: twice the logins that a principal can have open."""
_PLACE: Final = "login_pages/cookie"


class LoginCookies:
    def __init__(self, sealer: Sealer, *, is_secure: bool) -> None:
        """`is_secure`: the public URL is https. The prefix `__Host-` then keeps other hosts from setting the cookie."""
        self._sealer = sealer
        self._is_secure = is_secure
        self._prefix = "__Host-ringback-login-" if is_secure else "ringback-login-"

    def set_cookie(self, response: Response, upstream: str, login_id: LoginId) -> None:
        sealed = self._sealer.seal(login_id.encode(), associated_data=_PLACE)
        response.set_cookie(
            self._prefix + upstream,
            urlsafe_b64encode(sealed).decode(),
            max_age=int(LOGIN_SECONDS),
            path="/",
            secure=self._is_secure,
            httponly=True,
            samesite="lax",  # sent when the authorization server sends the browser back
        )

    def delete_cookie(self, response: Response, upstream: str) -> None:
        response.delete_cookie(self._prefix + upstream, path="/", secure=self._is_secure, httponly=True, samesite="lax")

    def read_login_ids(self, cookies: Mapping[str, str]) -> frozenset[LoginId]:
        """The logins that began in this browser. Cookies that this service did not make are ignored."""
        values = [value for name, value in cookies.items() if name.startswith(self._prefix)]
        found = (self._unseal(value) for value in values[:COOKIES_MAX])
        return frozenset(LoginId(login_id) for login_id in found if login_id is not None)

    def _unseal(self, value: str) -> str | None:
        try:
            return self._sealer.unseal(urlsafe_b64decode(value.encode()), associated_data=_PLACE).decode()
        except (UnsealError, binascii.Error, UnicodeError):
            return None
