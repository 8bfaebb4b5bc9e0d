"""Routes whose handlers get a viewer. Errors become pages.

page    GET   without a viewer: 303 to the sign-in page, which comes back
action  POST  without a viewer: 401; with a wrong form token, or from another site: 403
"""

import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from ringback.api.middleware import read_origin
from ringback.api.problems import status_for
from ringback.domain.errors import Forbidden, InvalidRequest, RingbackError, Unauthenticated
from ringback.domain.principal import Caller
from ringback.domain.protected_resource import REST_RESOURCE
from ringback.ui.context import UiContext
from ringback.ui.rendering import PAGE_HEADERS, Renderer
from ringback.ui.viewer import Viewer
from ringback.ui.viewer_cookie import ViewerCookie

log = logging.getLogger(__name__)

FORM_FIELDS_MAX: Final = 200
FORM_TOKEN_FIELD: Final = "form_token"  # noqa: S105 - the name of a field
ANONYMOUS_FORM_TOKEN: Final = "anonymous"  # noqa: S105 - no secret, see below
"""Without authentication a form is protected by the Origin check alone, as the REST API is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The fields of a form, without its form token."""

    fields: Mapping[str, list[str]]

    def get_text(self, name: str) -> str:
        """The first value; empty without one."""
        return self.fields.get(name, [""])[0]


PageHandler = Callable[[Request, Viewer], Awaitable[Response]]
ActionHandler = Callable[[Request, Viewer, Form], Awaitable[Response]]


class PageRoutes:
    """Makes the routes of pages and actions below the path `/ui`."""

    def __init__(self, context: UiContext, renderer: Renderer) -> None:
        self._context = context
        self._renderer = renderer
        self._cookie = ViewerCookie(context.sealer, is_secure=context.is_secure)

    def page(self, path: str, handler: PageHandler, *, in_session_portal: bool = False) -> Route:
        """`in_session_portal`: a link to one client session shows this page too. Its handler filters by that session."""

        async def show(request: Request) -> Response:
            viewer = None
            try:
                viewer = await self.find_viewer(request)
                if viewer is None:
                    return self._send_to_sign_in(request)
                if not in_session_portal:
                    viewer.require_client_session(None)
                return await handler(request, viewer)
            except RingbackError as problem:
                return self._show_problem(problem, viewer)

        return Route(f"/ui{path}", show, methods=["GET"])

    def action(self, path: str, handler: ActionHandler) -> Route:
        async def act(request: Request) -> Response:
            viewer = None
            try:
                viewer = await self.find_viewer(request)
                form = await read_form(request)
                self._require_own_form(request, viewer, form)
                if viewer is None:
                    raise Unauthenticated("You are signed out. Sign in and try again.")
                return await handler(request, viewer, form)
            except RingbackError as problem:
                return self._show_problem(problem, viewer)

        return Route(f"/ui{path}", act, methods=["POST"])

    async def find_viewer(self, request: Request) -> Viewer | None:
        """The viewer of this request; None if nobody is signed in."""
        if not self._context.requires_key:
            caller = await self._context.config.authenticator.authenticate(None, resource=REST_RESOURCE)
            return Viewer(caller=caller, form_token=ANONYMOUS_FORM_TOKEN)
        now = self._context.clock.now().timestamp()
        remembered = self._cookie.read_cookie(request.cookies, now=now)
        if remembered is None:
            return None
        caller: Caller | None = await self._context.services.api_keys.find_caller(remembered.key_id)
        return None if caller is None else Viewer(caller=caller, form_token=remembered.form_token)

    def _require_own_form(self, request: Request, viewer: Viewer | None, form: Form) -> None:
        """Raise `Forbidden` unless a page of the dashboard sent this form."""
        site = request.headers.get("sec-fetch-site", "same-origin")
        origin = request.headers.get("origin")
        is_own = site == "same-origin" and origin == read_origin(self._context.config.public_url)
        expected = "" if viewer is None else viewer.form_token
        if not is_own or not expected or not hmac.compare_digest(form.get_text(FORM_TOKEN_FIELD), expected):
            raise Forbidden("This form was not sent from a page of the dashboard. Open the page again and repeat it.")

    def _send_to_sign_in(self, request: Request) -> Response:
        query = f"?{request.url.query}" if request.url.query else ""
        place = quote(f"{request.url.path.removeprefix('/ui')}{query}", safe="")
        return RedirectResponse(f"/ui/sign-in?next={place}", status_code=HTTPStatus.SEE_OTHER, headers=PAGE_HEADERS)

    def _show_problem(self, problem: RingbackError, viewer: Viewer | None) -> Response:
        return self._renderer.render_page(
            "problem.html",
            viewer,
            title=problem.title(),
            status_code=status_for(type(problem)),
            detail=problem.detail,
        )


async def read_form(request: Request) -> Form:
    """The middleware bounds the bytes of the body."""
    try:
        fields = parse_qs(
            (await request.body()).decode("utf-8"), keep_blank_values=True, max_num_fields=FORM_FIELDS_MAX
        )
    except ValueError:
        raise InvalidRequest("The form cannot be read. Open the page again and repeat it.") from None
    return Form(fields=fields)
