"""A browser without a screen: it follows redirects, keeps cookies, and fills in the forms that stand in its way."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx

from tests.support.limits import WAIT_SECONDS

STEPS_MAX: Final = 20
"""Browsers stop after 20 redirects."""


@dataclass(slots=True)
class Form:
    action: str
    method: str
    values: dict[str, str] = field(default_factory=dict[str, str])


class Browser:
    """A user's browser. `answers` are what the user types into forms, by the name of the field."""

    def __init__(self, *, account: str = "ada", answers: Mapping[str, str] | None = None) -> None:
        self.answers: dict[str, str] = {"account": account, "action": "approve", **(answers or {})}
        self.visited: list[str] = []
        """Every URL in the order of the visits."""
        self.http = httpx.AsyncClient(timeout=WAIT_SECONDS, trust_env=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.http.aclose()

    async def approve(self, authorization_url: str) -> str:
        """Sign in and approve; the URL to which the authorization server redirects, which the browser does not visit.

        A user without a browser on the machine of the command copies this URL from the address bar.
        """
        redirect_uri = parse_qs(urlsplit(authorization_url).query)["redirect_uri"][0]
        arrived_at, page = await self._browse(authorization_url, until=redirect_uri)
        assert page is None, f"The authorization server does not redirect back: {page.status_code} {page.text}"
        return arrived_at

    async def visit(self, url: str) -> httpx.Response:
        """Open the URL, follow all redirects, and fill in forms that `answers` suffice for; the last page."""
        _, page = await self._browse(url, until=None)
        assert page is not None
        return page

    async def _browse(self, url: str, *, until: str | None) -> tuple[str, httpx.Response | None]:
        request = httpx.Request("GET", url)
        for _ in range(STEPS_MAX):
            self.visited.append(str(request.url))
            page = await self.http.send(self._with_cookies(request))
            following = self._choose_next_request(page)
            if following is None:
                return str(request.url), page
            if until is not None and str(following.url).startswith(until):
                return str(following.url), None
            request = following
        raise AssertionError(f"The browser is sent around: {self.visited}")

    def _choose_next_request(self, page: httpx.Response) -> httpx.Request | None:
        if page.has_redirect_location:
            return httpx.Request("GET", urljoin(str(page.url), page.headers["location"]))
        if page.is_error or not page.headers.get("content-type", "").startswith("text/html"):
            return None
        found = _PageParser()
        found.feed(page.text)
        if found.refresh_url is not None:
            return httpx.Request("GET", urljoin(str(page.url), found.refresh_url))
        return None if found.form is None else self._fill_in(found.form, page)

    def _fill_in(self, form: Form, page: httpx.Response) -> httpx.Request | None:
        """The request of the form; None if it asks for something that the user does not know."""
        if form.values and not form.values.keys() & self.answers.keys():
            return None
        filled = form.values | {name: text for name, text in self.answers.items() if name in form.values}
        origin = f"{page.url.scheme}://{page.url.netloc.decode()}"
        target = urljoin(str(page.url), form.action)
        return httpx.Request(form.method, target, data=filled, headers={"origin": origin})

    def _with_cookies(self, request: httpx.Request) -> httpx.Request:
        self.http.cookies.set_cookie_header(request)
        return request


class _PageParser(HTMLParser):
    """Reads where a page leads to: the URL that it loads by itself, or its first form."""

    def __init__(self) -> None:
        super().__init__()
        self.form: Form | None = None
        self.refresh_url: str | None = None
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "meta" and (values.get("http-equiv") or "").lower() == "refresh":
            self.refresh_url = (values.get("content") or "").partition("url=")[2]
        elif tag == "form" and self.form is None:
            self.form = Form(values.get("action") or "", (values.get("method") or "get").upper())
            self._inside = True
        elif self._inside and self.form is not None and tag in {"input", "button", "textarea"} and values.get("name"):
            self.form.values[values["name"] or ""] = values.get("value") or ""

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._inside = False
