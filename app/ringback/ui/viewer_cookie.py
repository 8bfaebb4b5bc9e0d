"""The cookie that remembers a viewer: sealed, so only this service makes one, and short-lived.

It has the id of an API key, not the key. Each request reads that key from the store again, so a revocation and an expiry take
effect with the next page. A viewer without an API key (authentication is off) has no cookie.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from starlette.responses import Response

from ringback.domain import jsontext
from ringback.domain.encryption import Sealer
from ringback.domain.ids import KeyId
from ringback.signing.sealing import UnsealError

COOKIE_SECONDS: Final = 8 * 3600
"""A working day. After it, the viewer enters the key again."""
_PLACE: Final = "ui/viewer"


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedViewer:
    key_id: KeyId
    form_token: str = field(repr=False)
    expires_at: float
    """Seconds since 1970."""


class ViewerCookie:
    def __init__(self, sealer: Sealer, *, is_secure: bool) -> None:
        """`is_secure`: the public URL is https. The prefix `__Host-` then keeps other hosts from setting the cookie."""
        self._sealer = sealer
        self._is_secure = is_secure
        self.name = "__Host-ringback-viewer" if is_secure else "ringback-viewer"

    def set_cookie(self, response: Response, remembered: RememberedViewer) -> None:
        text = jsontext.dumps([remembered.key_id, remembered.form_token, remembered.expires_at])
        response.set_cookie(
            self.name,
            urlsafe_b64encode(self._sealer.seal(text, associated_data=_PLACE)).decode(),
            max_age=COOKIE_SECONDS,
            path="/",
            secure=self._is_secure,
            httponly=True,
            samesite="lax",
        )

    def delete_cookie(self, response: Response) -> None:
        response.delete_cookie(self.name, path="/", secure=self._is_secure, httponly=True, samesite="lax")

    def read_cookie(self, cookies: Mapping[str, str], *, now: float) -> RememberedViewer | None:
        """None without a cookie, for one that this service did not make, and for one that has expired."""
        try:
            sealed = urlsafe_b64decode(cookies.get(self.name, "").encode())
            key_id, form_token, expires_at = jsontext.loads(self._sealer.unseal(sealed, associated_data=_PLACE))
        except (UnsealError, binascii.Error, UnicodeError, ValueError):
            return None
        if expires_at <= now:
            return None
        return RememberedViewer(key_id=KeyId(key_id), form_token=form_token, expires_at=expires_at)
