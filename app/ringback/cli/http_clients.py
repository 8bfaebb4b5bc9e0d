"""How the HTTP clients of commands differ from httpx's own: no cookies, no redirects, no proxy to servers on this machine.

httpx raises errors of its own for cookies and redirects that it cannot read, and sends cookies with later requests. A proxy of
the environment (HTTP_PROXY) cannot reach servers on this machine. Checks limit the whole response, and httpx each read of it.
"""

import asyncio
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, Final

import httpx

from ringback.client.arguments import is_on_this_machine

RESPONSE_SECONDS: Final = 15.0
"""For a whole response to a check: some hundred kilobytes at most."""


async def request_within_limit(http: httpx.AsyncClient, method: str, url: str, **content: Any) -> httpx.Response:
    """Raises `httpx.ReadTimeout`, too, for a response that does not end: httpx itself limits only each read of it."""
    try:
        async with asyncio.timeout(RESPONSE_SECONDS):
            return await http.request(method, url, **content)
    except TimeoutError:
        raise httpx.ReadTimeout(f"The response did not end within {RESPONSE_SECONDS:g} s.") from None


def refuse_cookies() -> CookieJar:
    """The `cookies` of a client that keeps none."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=()))


async def remove_location(response: httpx.Response) -> None:
    """The `response` hook of a client that does not follow redirects."""
    response.headers.pop("location", None)


def bypass_proxy_here(*urls: str) -> dict[str, None]:
    """The `mounts` of an httpx client that sends requests for those of these URLs that are on this machine without a proxy.

    `RingbackClient` does the same.
    """
    return {f"all://{httpx.URL(url).netloc.decode('ascii')}": None for url in urls if is_on_this_machine(url)}
