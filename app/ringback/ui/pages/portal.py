"""Opens a portal link: its secret moves from the URL into a cookie, and the browser goes on to the pages of the link.

These are below a path of their own, so that a browser has several links open, and a sign-in beside them.
"""

import logging

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.domain.errors import RingbackError
from ringback.services.access.portal_links import PortalCaller
from ringback.ui.context import UiContext
from ringback.ui.formats import session_path
from ringback.ui.page_handlers import PageHandlers
from ringback.ui.page_routes import ENDED_LINK, PageRoutes
from ringback.ui.redirects import PORTAL_PATH, redirect
from ringback.ui.rendering import Renderer

log = logging.getLogger(__name__)


class PortalPages(PageHandlers):
    def __init__(self, context: UiContext, renderer: Renderer, pages: PageRoutes) -> None:
        super().__init__(context, renderer)
        self._pages = pages

    def make_routes(self, pages: PageRoutes) -> list[Route]:
        del pages
        return [Route(PORTAL_PATH, self.open_link, methods=["GET"])]

    async def open_link(self, request: Request) -> Response:
        secret = request.query_params.get("link", "")
        try:
            found = await self._services.portal_links.find_caller(secret)
        except RingbackError as problem:
            return self._pages.show_problem(problem, None, in_portal=True)
        if found is None:
            return self._pages.show_problem(ENDED_LINK, None, in_portal=True)
        return self._send_to_pages(found, secret)

    def _send_to_pages(self, found: PortalCaller, secret: str) -> Response:
        session = found.client_session_id
        log.info("portal_link.opened", extra={"principal": found.caller.principal, "client_session_id": session})
        path = f"/portal/{found.link_id}{'' if session is None else session_path(session)}"
        # The URL has the secret, so no page learns it as the referrer.
        headers = {**self._renderer.headers.portal, "Referrer-Policy": "no-referrer"}
        response = redirect(path, headers=headers)
        left = (found.expires_at - self._context.clock.now()).total_seconds()
        self._pages.viewers.cookies.portal.set_secret(response, found.link_id, secret, max_age_seconds=left)
        return response
