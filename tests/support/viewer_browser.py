"""A browser without scripts that is signed in to the dashboard.

browser = await sign_in(service, "alice")
page = await browser.open("/calls")
page = await browser.send("/webhooks/wh_…/test")
"""

import re
from dataclasses import dataclass
from typing import Any, Final

import httpx

from ringback.domain.principal import DEFAULT_SCOPES, Scope
from tests.support.service_under_test import PUBLIC_URL, ServiceUnderTest

FORM_HEADERS: Final = {"Origin": PUBLIC_URL, "Sec-Fetch-Site": "same-origin"}
_FORM_TOKEN: Final = re.compile(r'name="form_token" value="([^"]+)"')


@dataclass(slots=True)
class ViewerBrowser:
    http: httpx.AsyncClient

    async def open(self, path: str, **query: str) -> httpx.Response:
        return await self.http.get(f"/ui{path}", params=query)

    async def send(self, path: str, *, on: str = "/", **fields: str) -> httpx.Response:
        """Send a form with the form token of the page `on`."""
        found = _FORM_TOKEN.search((await self.open(on)).text)
        assert found is not None, f"/ui{on} has no form"
        return await self.http.post(f"/ui{path}", data={"form_token": found[1], **fields}, headers=FORM_HEADERS)


async def sign_in(
    service: ServiceUnderTest, principal: str, *, scopes: frozenset[Scope] = DEFAULT_SCOPES, **options: Any
) -> ViewerBrowser:
    http = await service.create_anonymous_client(**options)
    key = await service.create_api_key(principal, scopes=scopes)
    signed_in = await http.post("/ui/sign-in", data={"key": key}, headers=FORM_HEADERS)
    assert signed_in.status_code == httpx.codes.SEE_OTHER, signed_in.text
    return ViewerBrowser(http)
