"""The pages on which a person signs in to an upstream, and the one where the browser comes back.

    GET  /login/{upstream}   a form; the same for every name, so it does not show which upstreams exist
    POST /login/{upstream}   key ▸ the login starts ▸ a cookie binds it to this browser ▸ a link to the authorization server
    GET  /login/callback/{upstream}     cookie and state name one login ▸ it is completed
    GET  /login/{upstream}/client.json  Ringback's client id metadata document; for every name, too

An attacker could send a victim a link to the authorization server whose login belongs to himself. Here a login belongs to the
owner of the key that was entered in the browser that completes it, and the form accepts nothing that another site posts. Pages
need no script, load nothing, and never show a text of a server.
"""

import hashlib
from base64 import b64encode
from collections.abc import Collection
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ringback.api.browser_forms import (
    KEY_FORM_BYTES_MAX,
    KEY_FORM_FIELDS_MAX,
    KeyAttemptLimiter,
    is_own_form,
    read_form_fields,
)
from ringback.api.context import ApiConfig
from ringback.api.http_errors import OriginNotAllowed, UnknownPath
from ringback.api.login_cookies import LoginCookies
from ringback.api.problems import add_retry_after, problem_response, status_for
from ringback.domain.clock import Clock
from ringback.domain.encryption import Sealer
from ringback.domain.errors import RingbackError, UnknownLogin
from ringback.domain.login_urls import (
    CALLBACK_SEGMENT,
    CLIENT_METADATA_SEGMENT,
    LOGIN_PATH,
    client_metadata_document,
    login_callback_url,
    login_page_url,
)
from ringback.domain.principal import Caller
from ringback.domain.protected_resource import REST_RESOURCE
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.protocol.upstream_logins import UPSTREAM_NAME_PATTERN, login_command
from ringback.services.logins.upstream_logins import StartedLogin
from ringback.services.services import Services

METADATA_MAX_AGE_SECONDS: Final = 3600
"""How long authorization servers may cache the document. It changes only with the settings."""


_TEMPLATES: Final = Environment(
    loader=PackageLoader("ringback.api"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
)
_STYLE: Final = _TEMPLATES.get_template("login.css").render()
_STYLE_HASH: Final = b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""Only the style sheet of the page. A form posts to this service: where a browser goes next is a link of the response."""

PAGE_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": _CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def render_page(template: str, *, status_code: int = 200, referrer: str = "no-referrer", **values: object) -> Response:
    """`referrer` is the Referrer-Policy. With `no-referrer`, browsers send `Origin: null` with a form of the page."""
    html = _TEMPLATES.get_template(template).render(values)
    headers = {**PAGE_HEADERS, "Referrer-Policy": referrer}
    return Response(html, status_code=status_code, headers=headers, media_type="text/html")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoginPageConfig:
    sealer: Sealer
    """Seals the cookies."""
    clock: Clock
    requires_key: bool
    """False while authentication is off."""
    redirect_urls: Collection[str] = ()
    """Redirect URIs of web front ends, which the client id metadata document lists."""


class LoginPages:
    def __init__(self, services: Services, config: ApiConfig, pages: LoginPageConfig) -> None:
        self._services = services
        self._config = config
        self._pages = pages
        self._cookies = LoginCookies(pages.sealer, is_secure=config.public_url.startswith("https:"))
        self._key_attempts = KeyAttemptLimiter(config.authenticator, clock=pages.clock)

    def make_routes(self) -> list[Route]:
        """The document first: an upstream may have the name `callback`, and no name has a dot."""
        return [
            Route(f"{LOGIN_PATH}/{{upstream}}/{CLIENT_METADATA_SEGMENT}", self.show_client_metadata, methods=["GET"]),
            Route(f"{LOGIN_PATH}/{CALLBACK_SEGMENT}/{{upstream}}", self.receive_redirect, methods=["GET"]),
            Route(f"{LOGIN_PATH}/{{upstream}}", self.show_form, methods=["GET"]),
            Route(f"{LOGIN_PATH}/{{upstream}}", self.start_login, methods=["POST"]),
        ]

    async def show_form(self, request: Request) -> Response:
        upstream: str = request.path_params["upstream"]
        if UPSTREAM_NAME_PATTERN.fullmatch(upstream) is None:
            return _show_problem(UnknownPath("There is no such page."))
        return self._render_form(upstream)

    async def start_login(self, request: Request) -> Response:
        upstream: str = request.path_params["upstream"]
        if UPSTREAM_NAME_PATTERN.fullmatch(upstream) is None:
            return _show_problem(UnknownPath("There is no such page."))
        if not is_own_form(request, self._config.public_url):
            url = login_page_url(self._config.public_url, upstream)
            return _show_problem(
                OriginNotAllowed(f"The form was sent from another page. Open {url} and send it from there.")
            )
        try:
            caller = await self._authenticate(request)
            started = await self._services.upstream_logins.start_login(caller, upstream)
        except RingbackError as problem:
            form = self._render_form(upstream, error=problem.detail, status=status_for(type(problem)))
            return add_retry_after(form, problem)
        return self._send_browser_on(upstream, started)

    async def receive_redirect(self, request: Request) -> Response:
        if request.method != "GET":
            return Response(status_code=HTTPStatus.METHOD_NOT_ALLOWED, headers={"Allow": "GET"})
        login_ids = self._cookies.read_login_ids(request.cookies)
        callback_url = login_callback_url(self._config.public_url, request.path_params["upstream"])
        redirected_to = f"{callback_url}?{request.url.query}"
        try:
            completed = await self._services.upstream_logins.complete_in_browser(login_ids, redirected_to)
        except UnknownLogin as problem:
            return render_page(
                "login_elsewhere.html", status_code=status_for(type(problem)), title="This sign-in is not finished"
            )
        except RingbackError as problem:
            return _show_problem(problem)
        page = render_page(
            "login_done.html", title=f"You are signed in to {completed.upstream}", upstream=completed.upstream
        )
        self._cookies.delete_cookie(page, completed.upstream)
        return page

    async def show_client_metadata(self, request: Request) -> Response:
        upstream: str = request.path_params["upstream"]
        if UPSTREAM_NAME_PATTERN.fullmatch(upstream) is None:
            return problem_response(UnknownPath("There is no such document."))
        if not self._config.public_url.startswith("https:"):
            return problem_response(UnknownPath("This service has no https URL, so it has no client id of its own."))
        document = client_metadata_document(self._config.public_url, upstream, self._pages.redirect_urls)
        return JSONResponse(document, headers={"Cache-Control": f"max-age={METADATA_MAX_AGE_SECONDS}"})

    # -- parts --

    def _render_form(self, upstream: str, *, error: str | None = None, status: int = HTTPStatus.OK) -> Response:
        return render_page(
            "login_form.html",
            status_code=status,
            referrer="same-origin",
            title=f"Sign in to {upstream}",
            upstream=upstream,
            error=error,
            requires_key=self._pages.requires_key,
            login_command=login_command(upstream),
        )

    def _send_browser_on(self, upstream: str, started: StartedLogin) -> Response:
        """A page with a link, because browsers apply `form-action` to the redirects of a form."""
        host = urlsplit(started.authorization_url).netloc.rpartition("@")[2]
        page = render_page(
            "login_redirect.html",
            title=f"Sign in to {upstream}",
            upstream=upstream,
            host=host,
            is_shared=started.login.owner == SHARED_OWNER,
            authorization_url=started.authorization_url.replace("'", "%27"),  # it would end the URL of a refresh
        )
        self._cookies.set_cookie(page, upstream, started.login.id)
        return page

    async def _authenticate(self, request: Request) -> Caller:
        """The caller whose key is in the form."""
        fields = await read_form_fields(request, fields_max=KEY_FORM_FIELDS_MAX, bytes_max=KEY_FORM_BYTES_MAX)
        if not self._pages.requires_key:
            return await self._config.authenticator.authenticate(None, resource=REST_RESOURCE)
        return await self._key_attempts.authenticate(request, fields.get("key", [""])[0].strip() or None)


def _show_problem(problem: RingbackError) -> Response:
    page = render_page(
        "login_problem.html", status_code=status_for(type(problem)), title="The sign-in failed", detail=problem.detail
    )
    return add_retry_after(page, problem)
