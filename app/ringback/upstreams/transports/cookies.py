"""Cookies of one session with an upstream, which a load balancer in front of it may need to route the session.

MCP itself uses no cookies. This transport keeps them below all other transports, so that it also sees those of plain JSON
responses, and removes them from the response, because the cookie jar of the SDK's HTTP client has no limit. Cookies live as
long as the session and follow the usual rules for domains and paths. A configured `Cookie` header replaces them.
"""

from http.cookiejar import Cookie, CookieJar
from typing import Final

import httpx2

COOKIES_MAX: Final = 50
"""For one session. RFC 6265 §6.1 requires this many of a browser for a domain; a load balancer sets one or two."""
COOKIE_BYTES_MAX: Final = 4096
"""For a whole Set-Cookie header, as in the same section."""
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
            self._store_cookies(request, response)
        return response

    def _store_cookies(self, request: httpx2.Request, response: httpx2.Response) -> None:
        cookies = [value for value in response.headers.get_list(_SET_COOKIE) if len(value) <= COOKIE_BYTES_MAX]
        del response.headers[_SET_COOKIE]
        headers = [(_SET_COOKIE, value) for value in cookies[:COOKIES_MAX]]
        self._cookies.extract_cookies(httpx2.Response(response.status_code, headers=headers, request=request))


class BoundedCookieJar(CookieJar):
    """When the jar is full, existing cookies can be updated; new ones are ignored until one has expired."""

    def set_cookie(self, cookie: Cookie) -> None:
        if len(self) >= COOKIES_MAX:
            self.clear_expired_cookies()
        if len(self) < COOKIES_MAX or _key(cookie) in map(_key, self):
            super().set_cookie(cookie)


def _key(cookie: Cookie) -> tuple[str, str, str]:
    return cookie.domain, cookie.path, cookie.name
