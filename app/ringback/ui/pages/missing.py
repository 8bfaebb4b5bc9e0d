"""What the dashboard shows at a path that no page has."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.domain.errors import NotFound
from ringback.ui.page_routes import PageRoutes
from ringback.ui.viewer import Viewer


class MissingPages:
    def make_routes(self, pages: PageRoutes) -> list[Route]:
        """Their path matches every other one, so they are the last routes."""
        return [pages.page("/{path:path}", self.show_missing, in_session_portal=True)]

    async def show_missing(self, request: Request, viewer: Viewer) -> Response:
        del request, viewer
        raise NotFound("The dashboard has no page at this address. Its sections are the links above.")
