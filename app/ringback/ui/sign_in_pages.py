"""Sign in with an API key, and sign out."""

from base64 import urlsafe_b64encode
from collections.abc import Callable
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ringback.api.middleware import read_origin
from ringback.api.problems import status_for
from ringback.domain.errors import Forbidden, RingbackError, Unauthenticated
from ringback.domain.principal import Scope
from ringback.domain.protected_resource import REST_RESOURCE
from ringback.ui.context import UiContext
from ringback.ui.page_routes import PageRoutes, read_form
from ringback.ui.rendering import PAGE_HEADERS, Renderer
from ringback.ui.viewer_cookie import COOKIE_SECONDS, RememberedViewer, ViewerCookie


class SignInPages:
    def __init__(self, context: UiContext, renderer: Renderer, random_bytes: Callable[[int], bytes]) -> None:
        self._context = context
        self._renderer = renderer
        self._random_bytes = random_bytes
        self._cookie = ViewerCookie(context.sealer, is_secure=context.is_secure)

    def make_routes(self, pages: PageRoutes) -> list[Route]:
        del pages
        return [
            Route("/ui/sign-in", self.show_form, methods=["GET"]),
            Route("/ui/sign-in", self.sign_in, methods=["POST"]),
            Route("/ui/sign-out", self.sign_out, methods=["POST"]),
        ]

    async def show_form(self, request: Request) -> Response:
        return self._render_form(request)

    async def sign_in(self, request: Request) -> Response:
        try:
            if request.headers.get("origin") != read_origin(self._context.config.public_url):
                raise Forbidden("This form was not sent from a page of the dashboard.")
            form = await read_form(request)
            key = form.get_text("key").strip() or None
            caller = await self._context.config.authenticator.authenticate(key, resource=REST_RESOURCE)
            caller.require_scope(Scope.READ)
            if caller.key_id is None:
                raise Unauthenticated("Enter an API key: rbk_…")
        except RingbackError as problem:
            return self._render_form(request, error=problem.detail, status=status_for(type(problem)))
        remembered = RememberedViewer(
            key_id=caller.key_id,
            form_token=urlsafe_b64encode(self._random_bytes(24)).decode(),
            expires_at=self._context.clock.now().timestamp() + COOKIE_SECONDS,
        )
        response = RedirectResponse(f"/ui{_read_next(request)}", status_code=HTTPStatus.SEE_OTHER, headers=PAGE_HEADERS)
        self._cookie.set_cookie(response, remembered)
        return response

    async def sign_out(self, request: Request) -> Response:
        del request
        response = RedirectResponse("/ui/sign-in", status_code=HTTPStatus.SEE_OTHER, headers=PAGE_HEADERS)
        self._cookie.delete_cookie(response)
        return response

    def _render_form(self, request: Request, *, error: str | None = None, status: int = HTTPStatus.OK) -> Response:
        del request
        return self._renderer.render_page("sign_in.html", None, title="Sign in", status_code=status, error=error)


def _read_next(request: Request) -> str:
    """The page to show after the sign-in: a path of the dashboard."""
    place = request.query_params.get("next", "/")
    return place if place.startswith("/") and not place.startswith(("//", "/\\")) else "/"
