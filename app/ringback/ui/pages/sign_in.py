"""Sign in with an API key, and sign out."""

import logging
from http import HTTPStatus
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.api.browser_forms import (
    KEY_FORM_BYTES_MAX,
    KEY_FORM_FIELDS_MAX,
    KeyAttemptLimiter,
    is_own_form,
    read_form_fields,
)
from ringback.api.problems import add_retry_after, status_for
from ringback.domain.errors import Forbidden, RingbackError, Unauthenticated
from ringback.domain.principal import Caller
from ringback.domain.sign_ins import SIGN_IN_SECONDS
from ringback.ui.context import UiContext
from ringback.ui.page_handlers import PageHandlers
from ringback.ui.page_routes import NEXT_LENGTH_MAX, Form, PageRoutes
from ringback.ui.query_parameters import with_query
from ringback.ui.redirects import redirect
from ringback.ui.rendering import Renderer
from ringback.ui.viewer import Viewer

log = logging.getLogger(__name__)


class SignInPages(PageHandlers):
    def __init__(self, context: UiContext, renderer: Renderer, pages: PageRoutes) -> None:
        super().__init__(context, renderer)
        self._viewers = pages.viewers
        self._key_attempts = KeyAttemptLimiter(context.config.authenticator, clock=context.clock)

    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [
            Route("/ui/sign-in", self.show_form, methods=["GET"]),
            Route("/ui/sign-in", self.sign_in, methods=["POST"]),
            pages.action("/sign-out", self.sign_out),
        ]

    async def show_form(self, request: Request) -> Response:
        if not self._context.requires_key:
            return redirect("")
        return self._render_form(request)

    async def sign_in(self, request: Request) -> Response:
        try:
            if not is_own_form(request, self._context.config.public_url):
                raise Forbidden("This form was not sent from the sign-in page. Open it again and repeat it.")
            caller = await self._read_caller(request)
            started = await self._services.sign_ins.sign_in(caller)
        except RingbackError as problem:
            if isinstance(problem, Unauthenticated):  # these are limited; others could fill the log
                log.info("viewer.refused", extra={"reason": problem.slug})
            form = self._render_form(request, error=problem.detail, status=status_for(type(problem)))
            return add_retry_after(form, problem)
        response = redirect(read_next(request.query_params.get("next")))
        await self._viewers.end_sign_in(request, response)
        self._viewers.cookies.sign_in.set_secret(response, started.secret, max_age_seconds=SIGN_IN_SECONDS)
        return response

    async def sign_out(self, request: Request, viewer: Viewer, form: Form) -> Response:
        del form
        response = redirect("/sign-in")
        await self._viewers.end_sign_in(request, response)
        log.info("viewer.signed_out", extra={"principal": viewer.caller.principal, "key_id": viewer.caller.key_id})
        return response

    async def _read_caller(self, request: Request) -> Caller:
        """The caller of the API key in the form. An access token is no key: its browser comes from the issuer."""
        fields = await read_form_fields(request, fields_max=KEY_FORM_FIELDS_MAX, bytes_max=KEY_FORM_BYTES_MAX)
        caller = await self._key_attempts.authenticate(request, fields.get("key", [""])[0].strip() or None)
        if self._context.requires_key and caller.key_id is None:
            raise Unauthenticated("Enter an API key: rbk_…")
        return caller

    def _render_form(self, request: Request, *, error: str | None = None, status: int = HTTPStatus.OK) -> Response:
        issuer = self._context.issuer_sign_in
        place = read_next(request.query_params.get("next"))
        return self._renderer.render_page(
            "sign_in.html",
            None,
            title="Sign in",
            status_code=status,
            error=error,
            issuer_host=None if issuer is None else urlsplit(issuer.issuer).netloc,
            next_query=with_query("", {"next": place}),
        )


def read_next(place: str | None) -> str:
    """The page to show after the sign-in: a path below the dashboard's own, so it cannot lead elsewhere."""
    if place is None or not place.startswith("/") or len(place) > NEXT_LENGTH_MAX or not place.isprintable():
        return ""
    return "" if place.startswith(("//", "/\\")) else place
