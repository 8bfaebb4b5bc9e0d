"""Sign in at the issuer of access tokens, and come back.

    GET /ui/sign-in/issuer     the browser keeps the secrets of this sign-in, sealed, and goes to the issuer
    GET /ui/sign-in/callback   cookie and state name one sign-in ▸ code ──▶ access token ▸ judged as for REST ▸ signed in

The sign-in lasts as long as the access token, eight hours at most. The token itself is not kept.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ringback.api.browser_forms import identify_browser
from ringback.domain import jsontext
from ringback.domain.errors import Forbidden, QuotaExceeded, RingbackError
from ringback.domain.protected_resource import REST_RESOURCE
from ringback.domain.rate_limiter import RateLimit, RateLimiter
from ringback.domain.sign_ins import SIGN_IN_SECONDS
from ringback.identity.issuer_sign_in import BegunSignIn, IssuerSignIn, read_expiry
from ringback.signing.sealing import UnsealError
from ringback.ui.context import UiContext
from ringback.ui.page_routes import PageRoutes
from ringback.ui.pages.sign_in import read_next
from ringback.ui.redirects import redirect
from ringback.ui.rendering import PAGE_HEADERS
from ringback.ui.viewer_cookies import SecretCookie

BEGUN_SECONDS: Final = 600.0
"""Time to type a password and a second factor."""
START_RATE: Final = RateLimit(per_second=20 / 60, burst=20)
"""Sign-ins that one address may begin or finish. Each sends a request to the issuer."""
_PLACE: Final = "ui/issuer-sign-in"
_COOKIE_LENGTH_MAX: Final = 8_192


class IssuerPages:
    def __init__(self, context: UiContext, pages: PageRoutes) -> None:
        self._context = context
        self._pages = pages
        self._cookie = SecretCookie("ringback-sign-in", is_secure=context.is_secure)
        self._starts: RateLimiter[str] = RateLimiter()

    def make_routes(self, pages: PageRoutes) -> list[Route]:
        del pages
        if self._context.issuer_sign_in is None:
            return []
        issuer = self._context.issuer_sign_in

        async def begin(request: Request) -> Response:
            try:
                return await self._begin(request, issuer)
            except RingbackError as problem:
                return self._pages.show_problem(problem, None)

        async def complete(request: Request) -> Response:
            try:
                response = await self._complete(request, issuer)
            except RingbackError as problem:
                response = self._pages.show_problem(problem, None)
            self._cookie.delete(response)
            return response

        return [
            Route("/ui/sign-in/issuer", begin, methods=["GET"]),
            Route("/ui/sign-in/callback", complete, methods=["GET"]),
        ]

    async def _begin(self, request: Request, issuer: IssuerSignIn) -> Response:
        self._acquire_start(request)
        url, begun = await issuer.begin()
        ends_at = self._context.clock.now().timestamp() + BEGUN_SECONDS
        text = jsontext.dumps([begun.state, begun.verifier, read_next(request.query_params.get("next")), ends_at])
        response = RedirectResponse(url, status_code=HTTPStatus.SEE_OTHER, headers=PAGE_HEADERS)
        sealed = self._context.sealer.seal(text, associated_data=_PLACE)
        self._cookie.set_secret(response, urlsafe_b64encode(sealed).decode(), max_age_seconds=BEGUN_SECONDS)
        return response

    async def _complete(self, request: Request, issuer: IssuerSignIn) -> Response:
        self._acquire_start(request)
        begun, place = self._read_begun(request)
        token = await issuer.complete(begun, request.query_params)
        caller = await self._context.config.authenticator.authenticate(token, resource=REST_RESOURCE)
        if caller.key_id is not None:
            raise Forbidden("The issuer gave an API key instead of an access token.")
        started = await self._context.services.sign_ins.sign_in(caller, expires_at=read_expiry(token))
        response = redirect(place)
        await self._pages.viewers.end_sign_in(request, response)
        left = (started.expires_at - self._context.clock.now()).total_seconds()
        cookie = self._pages.viewers.cookies.sign_in
        cookie.set_secret(response, started.secret, max_age_seconds=min(left, SIGN_IN_SECONDS))
        return response

    def _read_begun(self, request: Request) -> tuple[BegunSignIn, str]:
        """The sign-in that began in this browser, and the page to which it leads."""
        value = self._cookie.read_secret(request.cookies) or ""
        try:
            sealed = urlsafe_b64decode(value[:_COOKIE_LENGTH_MAX].encode())
            text: Any = jsontext.loads(self._context.sealer.unseal(sealed, associated_data=_PLACE))
            state, verifier, place, ends_at = text
        except (UnsealError, binascii.Error, ValueError):
            raise _not_begun() from None
        if ends_at <= self._context.clock.now().timestamp():
            raise _not_begun()
        return BegunSignIn(state=state, verifier=verifier), place

    def _acquire_start(self, request: Request) -> None:
        now = self._context.clock.monotonic()
        bucket = self._starts.get_bucket(identify_browser(request), START_RATE, now=now)
        if not bucket.try_acquire(now):
            raise QuotaExceeded(
                "Many sign-ins came from your address. Wait a minute.",
                retry_after_seconds=1 + int(bucket.wait_seconds(now)),
            )


def _not_begun() -> Forbidden:
    return Forbidden("This sign-in did not begin in this browser, or it took too long. Sign in again.")
