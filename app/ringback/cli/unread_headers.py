"""Headers of responses that these commands do not need and httpx reads: cookies, and where a redirect leads.

httpx raises errors of its own for those that it cannot read, and sends the cookies with later requests.
"""

from http.cookiejar import CookieJar, DefaultCookiePolicy

import httpx


def refuse_cookies() -> CookieJar:
    """The `cookies` of a client that keeps none."""
    return CookieJar(DefaultCookiePolicy(allowed_domains=()))


async def remove_location(response: httpx.Response) -> None:
    """The `response` hook of a client that does not follow redirects."""
    response.headers.pop("location", None)
