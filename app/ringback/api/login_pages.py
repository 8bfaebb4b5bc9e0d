"""The pages on which a person signs in to an upstream, and the one where the browser comes back.

    GET  /login/{upstream}   a form; the same for every name, so it does not show which upstreams exist
    POST /login/{upstream}   key ▸ the login starts ▸ a cookie binds it to this browser ▸ a link to the authorization server
    GET  /login/callback/{upstream}     cookie and state name one login ▸ it is completed
    GET  /login/{upstream}/client.json  Ringback's client id metadata document; for every name, too

Somebody could send a victim a link to the authorization server whose login belongs to himself. Here a login belongs to the
owner of the key that was entered in the browser that completes it, and the form accepts nothing that another site posts. Pages
need no script, load nothing, and never show a text of a server.
"""

from collections.abc import Collection
from dataclasses import dataclass
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ringback.api.context import ApiConfig, Services
from ringback.api.login_cookies import LoginCookies
from ringback.api.middleware import read_origin
from ringback.api.page_templates import render_page
from ringback.api.problems import OriginNotAllowed, UnknownPath, problem_response, status_for
from ringback.domain.client_address import identify_peer
from ringback.domain.clock import Clock
from ringback.domain.encryption import Sealer
from ringback.domain.errors import QuotaExceeded, RingbackError, Unauthenticated, UnknownLogin
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
from ringback.domain.rate_limiter import RateLimit, RateLimiter
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.protocol.upstream_logins import UPSTREAM_NAME_PATTERN, login_command
from ringback.services.upstream_logins import StartedLogin

FORM_BYTES_MAX: Final = 32 * 1024
"""A key has some fifty characters, an access token some thousand."""
GUESS_RATE: Final = RateLimit(per_second=10 / 60, burst=10)
"""Wrong keys of one address (IPv6: one /64). A key has 256 random bits, so the limit only keeps the log readable."""
METADATA_MAX_AGE_SECONDS: Final = 3600
"""How long authorization servers may cache the document. It changes only with the settings."""


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
        self._guesses: RateLimiter[str] = RateLimiter()

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
        if not self._is_own_form(request):
            url = login_page_url(self._config.public_url, upstream)
            return _show_problem(
                OriginNotAllowed(f"The form was sent from another page. Open {url} and send it from there.")
            )
        try:
            caller = await self._authenticate(request)
            started = await self._services.upstream_logins.start_login(caller, upstream)
        except RingbackError as problem:
            return self._render_form(upstream, error=problem.detail, status=status_for(type(problem)))
        return self._send_browser_on(upstream, started)

    async def receive_redirect(self, request: Request) -> Response:
        if request.method != "GET":
            return Response(status_code=HTTPStatus.METHOD_NOT_ALLOWED)
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

    def _is_own_form(self, request: Request) -> bool:
        """Whether a browser sent the form from this page, at the public URL.

        A form of another site could sign its victim in to a login of its own. A browser decides by its own name of the host,
        which proxies replace in the header Host.
        """
        site = request.headers.get("sec-fetch-site", "same-origin")
        return site == "same-origin" and request.headers.get("origin") == read_origin(self._config.public_url)

    async def _authenticate(self, request: Request) -> Caller:
        """The caller whose key is in the form. Wrong keys of one address are limited."""
        key = await _read_key(request)
        if not self._pages.requires_key:
            return await self._config.authenticator.authenticate(None, resource=REST_RESOURCE)
        now, peer = self._pages.clock.monotonic(), _identify_peer(request)
        bucket = self._guesses.get_bucket(peer, GUESS_RATE, now=now)
        if not bucket.try_acquire(now):
            raise QuotaExceeded(
                "Many wrong keys came from your address, so no key is looked at for a moment. Wait a minute.",
                retry_after_seconds=1 + int(bucket.wait_seconds(now)),
            )
        caller = await self._config.authenticator.authenticate(key, resource=REST_RESOURCE)
        self._guesses.refund_permit(peer)
        return caller


async def _read_key(request: Request) -> str | None:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            raise Unauthenticated("The form is too large. Enter your API key.")
    try:
        values = parse_qs(body.decode("ascii"), max_num_fields=10)
    except ValueError:
        values = {}
    return values.get("key", [""])[0].strip() or None


def _identify_peer(request: Request) -> str:
    host = request.client.host if request.client is not None else ""
    try:
        return identify_peer(ip_address(host))
    except ValueError:
        return host


def _show_problem(problem: RingbackError) -> Response:
    return render_page(
        "login_problem.html", status_code=status_for(type(problem)), title="The sign-in failed", detail=problem.detail
    )
