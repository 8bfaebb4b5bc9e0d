"""Cookies of one session with an upstream: a load balancer in front of it may need one to find the session again.

MCP itself uses none. They are kept here, below all that looks at answers, so that the cookie of a plain JSON answer counts too,
and are taken out of the response, because the jar of the SDK's HTTP client has no bound. They live as long as the link, and go
to the upstream alone by the usual rules for domains and paths. A configured `Cookie` header takes their place.
"""

from http.cookiejar import Cookie, CookieJar
from typing import Final

import httpx2

COOKIES_MAX: Final = 50
"""Of one session. RFC 6265 §6.1 asks of browsers to hold as many for a domain; a load balancer sets one or two."""
COOKIE_BYTES_MAX: Final = 4096
"""A whole Set-Cookie header. The same section asks for as much."""
_SET_COOKIE: Final = "set-cookie"


class CookieTransport(httpx2.AsyncBaseTransport):
    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner
        self._jar = BoundedCookieJar()
        self._cookies = httpx2.Cookies(self._jar)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if len(self._jar) and "cookie" not in request.headers:
            self._cookies.set_cookie_header(request)
        response = await self._inner.handle_async_request(request)
        if _SET_COOKIE in response.headers:
            self._keep(request, response)
        return response

    def _keep(self, request: httpx2.Request, response: httpx2.Response) -> None:
        cookies = [value for value in response.headers.get_list(_SET_COOKIE) if len(value) <= COOKIE_BYTES_MAX]
        del response.headers[_SET_COOKIE]
        headers = [(_SET_COOKIE, value) for value in cookies[:COOKIES_MAX]]
        self._cookies.extract_cookies(httpx2.Response(response.status_code, headers=headers, request=request))


class BoundedCookieJar(CookieJar):
    """When it is full, a cookie that it holds can be set anew, and others are passed over until one has expired."""

    def set_cookie(self, cookie: Cookie) -> None:
        if len(self) >= COOKIES_MAX:
            self.clear_expired_cookies()
        if len(self) < COOKIES_MAX or _key(cookie) in map(_key, self):
            super().set_cookie(cookie)


def _key(cookie: Cookie) -> tuple[str, str, str]:
    return cookie.domain, cookie.path, cookie.name
