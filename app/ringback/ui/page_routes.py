"""Routes whose handlers get a viewer. Errors become pages.

page    GET   without a viewer: 303 to the sign-in page, which comes back
action  POST  without a viewer: 401; with a wrong form token, or from another site: 403. Portal links have no actions
"""

import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.api.browser_forms import is_own_form, read_form_fields
from ringback.api.problems import add_retry_after, status_for
from ringback.domain.errors import Forbidden, Gone, NotFound, RingbackError, Unauthenticated
from ringback.domain.ids import is_well_formed_id
from ringback.ui.context import UiContext
from ringback.ui.redirects import PORTAL_PATH, redirect, reload_open_page, reload_page_of_part
from ringback.ui.rendering import Renderer
from ringback.ui.viewer import Viewer
from ringback.ui.viewers import LINK_PARAMETER, Viewers, find_link_id

FORM_FIELDS_MAX: Final = 200
FORM_TOKEN_FIELD: Final = "form_token"  # noqa: S105 - the name of a field
NEXT_LENGTH_MAX: Final = 2_000
"""Characters of the page that the sign-in page comes back to. A longer one is not remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The fields of a form."""

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
        self.viewers = Viewers(context)
        self.portal_routes: list[Route] = []
        """Each page once more, below the path of a portal link."""

    def page(self, path: str, handler: PageHandler, *, in_session_portal: bool = False) -> Route:
        """`in_session_portal`: a link to one client session shows this page too. Its handler filters by that session."""

        async def show(request: Request) -> Response:
            viewer = None
            if not _names_possible_link(request):
                return self.show_problem(ENDED_LINK, None, in_portal=True)
            try:
                viewer = await self.viewers.find_viewer(request)
                if viewer is None:
                    return reload_open_page(request) or self._refuse_unauthenticated(request)
                if not in_session_portal:
                    viewer.require_client_session(None)
                await self._renderer.prepare()
                return await handler(request, viewer)
            except (NotFound, Gone) as problem:
                return reload_page_of_part(request) or self.show_problem(problem, viewer)
            except RingbackError as problem:
                return self.show_problem(problem, viewer)

        self.portal_routes.append(Route(f"{PORTAL_PATH}/{{{LINK_PARAMETER}}}{path}", show, methods=["GET"]))
        return Route(f"/ui{path}", show, methods=["GET"])

    def action(self, path: str, handler: ActionHandler) -> Route:
        async def act(request: Request) -> Response:
            viewer = None
            try:
                viewer = await self.viewers.find_viewer(request)
                if viewer is None:
                    raise Unauthenticated("You are signed out. Sign in and try again.")
                body_admission = self._context.services.body_admission
                await body_admission.admit_body(viewer.caller.principal, await request.body())
                form = await read_form(request)
                self._require_own_form(request, viewer, form)
                return await handler(request, viewer, form)
            except RingbackError as problem:
                return self.show_problem(problem, viewer)

        return Route(f"/ui{path}", act, methods=["POST"])

    def show_problem(self, problem: RingbackError, viewer: Viewer | None, *, in_portal: bool = False) -> Response:
        """`in_portal`: in the frame of a product, whose link does not count any more."""
        page = self._renderer.render_page(
            "problem.html",
            viewer,
            title=problem.title(),
            status_code=status_for(type(problem)),
            in_portal=in_portal or (viewer is not None and viewer.is_portal),
            detail=problem.detail,
        )
        return add_retry_after(page, problem)

    def _require_own_form(self, request: Request, viewer: Viewer, form: Form) -> None:
        """Raise `Forbidden` unless a page of the dashboard for this viewer sent the form."""
        token, expected = form.get_text(FORM_TOKEN_FIELD).encode(), viewer.form_token.encode()
        is_own = is_own_form(request, self._context.config.public_url)
        if not is_own or not expected or not hmac.compare_digest(token, expected):
            raise Forbidden("This form was not sent from a page of the dashboard. Open the page again and repeat it.")

    def _refuse_unauthenticated(self, request: Request) -> Response:
        """The response to a request without a viewer: the sign-in page, or within a frame that the link has ended."""
        link_id = find_link_id(request)
        if link_id is None:
            return self._send_to_sign_in(request)
        if request.headers.get("sec-fetch-dest") in _FRAMES:
            return self.show_problem(ENDED_LINK, None, in_portal=True)
        response = redirect(_find_place(request).removeprefix(f"/portal/{link_id}"))
        if self.viewers.cookies.portal.read_secrets(request.headers):
            self.viewers.cookies.portal.delete(response, link_id)
        return response

    def _send_to_sign_in(self, request: Request) -> Response:
        place = _find_place(request)
        back = f"?next={quote(place, safe='')}" if len(place) <= NEXT_LENGTH_MAX else ""
        return redirect(f"/sign-in{back}")


def _names_possible_link(request: Request) -> bool:
    """Whether the path names no portal link, or one that could exist. Cookies and redirects repeat no other text of a path."""
    link_id = find_link_id(request)
    return link_id is None or is_well_formed_id("link", link_id)


def _find_place(request: Request) -> str:
    """The path of a page and its query, below the dashboard's path, as the browser has sent them: a name may have a percent."""
    query = f"?{request.url.query}" if request.url.query else ""
    raw_path: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    return f"{raw_path.decode('ascii', 'replace').removeprefix('/ui')}{query}"


_FRAMES: Final = frozenset({"iframe", "frame"})
"""Values of `Sec-Fetch-Dest` for a page inside another one."""
ENDED_LINK: Final = NotFound(
    "This link has expired, or it was deleted. Open the page again from where you found the link."
)


async def read_form(request: Request) -> Form:
    """The middleware bounds the bytes of the body."""
    return Form(fields=await read_form_fields(request, fields_max=FORM_FIELDS_MAX))
