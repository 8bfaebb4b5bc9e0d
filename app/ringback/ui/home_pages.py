"""The first page."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.ui.context import UiContext
from ringback.ui.page_routes import PageRoutes
from ringback.ui.rendering import Renderer
from ringback.ui.viewer import Viewer


class HomePages:
    def __init__(self, context: UiContext, renderer: Renderer) -> None:
        self._context = context
        self._renderer = renderer

    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [pages.page("", self.show_home), pages.page("/", self.show_home)]

    async def show_home(self, request: Request, viewer: Viewer) -> Response:
        del request
        return self._renderer.render_page("home.html", viewer, title="Overview")
