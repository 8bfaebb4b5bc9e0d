"""The upstreams: the list, the page of one with its tools, and what an operator decides about its calls."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.domain.errors import NotFound, SignInRequired, Unavailable
from ringback.domain.upstream_rows import UpstreamIntake
from ringback.domain.upstreams import ToolInfo
from ringback.services.insights.insights import ListedUpstream
from ringback.ui.context import UiContext
from ringback.ui.forms.schema_reading import bound_text, is_object
from ringback.ui.notices import find_notice
from ringback.ui.page_handlers import PageHandlers
from ringback.ui.page_routes import Form, PageRoutes
from ringback.ui.query_parameters import with_query
from ringback.ui.redirects import redirect
from ringback.ui.viewer import Viewer

TOOLS_SHOWN_MAX: Final = 300
"""Tools of one upstream on its page. The form of another one opens by its name."""
DESCRIPTION_LENGTH_MAX: Final = 400
_HINTS: Final = (
    ("readOnlyHint", "reads only"),
    ("destructiveHint", "may destroy"),
    ("idempotentHint", "repeatable"),
    ("openWorldHint", "open world"),
)
DRIVER_MEANINGS: Final[Mapping[str, str]] = {
    "task": "the server runs the call as a task, which Ringback polls",
    "legacy_task": "the server runs the call as a task of protocol 2025-11-25, which Ringback polls",
    "mrtr": "one request, which Ringback sends again with the answers if the tool asks for input",
    "stream": "one request, whose response Ringback resumes after a disconnect",
    "plain": "one request, which cannot be resumed after a disconnect",
}
_INTAKES: Final = {
    "pause": (UpstreamIntake.PAUSED, "upstream-paused"),
    "drain": (UpstreamIntake.DRAINING, "upstream-draining"),
    "resume": (UpstreamIntake.OPEN, "upstream-resumed"),
}


class ShownTool(NamedTuple):
    """What the page of an upstream shows of a tool. The upstream wrote all of it, so it is bounded."""

    name: str
    title: str
    description: str
    hints: Sequence[str]


class UpstreamPages(PageHandlers):
    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [
            pages.page("/upstreams", self.list_upstreams),
            pages.page("/upstreams/{name}", self.show_upstream),
            *(pages.action(f"/upstreams/{{name}}/{decision}", self._set_intake) for decision in _INTAKES),
        ]

    async def list_upstreams(self, request: Request, viewer: Viewer) -> Response:
        return self._renderer.render_page(
            "upstreams.html",
            viewer,
            title="Upstreams",
            upstreams=await self._services.insights.list_upstreams(viewer.caller),
            done=find_notice(request),
        )

    async def show_upstream(self, request: Request, viewer: Viewer) -> Response:
        listed = await find_upstream(self._context, viewer, request.path_params["name"])
        tools, tools_problem = await self._list_tools(viewer, listed)
        return self._renderer.render_page(
            "upstream.html",
            viewer,
            title=listed.info.name,
            section="Upstreams",
            listed=listed,
            driver_meaning=DRIVER_MEANINGS.get(listed.info.driver or ""),
            tools=[describe_tool(tool) for tool in tools[:TOOLS_SHOWN_MAX]],
            tools_count=len(tools),
            tools_problem=tools_problem,
            done=find_notice(request),
        )

    async def _list_tools(self, viewer: Viewer, listed: ListedUpstream) -> tuple[Sequence[ToolInfo], str | None]:
        """The tools, and why there are none. An upstream that is down has a page too."""
        try:
            return await self._services.insights.list_tools(viewer.caller, listed.info.name), None
        except (NotFound, SignInRequired, Unavailable) as problem:
            return (), problem.detail

    async def _set_intake(self, request: Request, viewer: Viewer, form: Form) -> Response:
        del form
        name, services = request.path_params["name"], self._services
        decision = request.url.path.rpartition("/")[2]
        intake, done = _INTAKES[decision]
        services.operators.require_admin(viewer.caller, operation=f"ui_{decision}_upstream", target=name)
        await services.upstream_controls.set_intake(viewer.caller, name, intake)
        return redirect(with_query(f"/upstreams/{name}", {"done": done}))


async def find_upstream(context: UiContext, viewer: Viewer, name: str) -> ListedUpstream:
    """The upstream as the viewer sees it. Raises `NotFound` for one that does not exist, or that its key may not use."""
    for listed in await context.services.insights.list_upstreams(viewer.caller):
        if listed.info.name == name:
            return listed
    raise NotFound("There is no upstream of this name.")


def describe_tool(tool: ToolInfo) -> ShownTool:
    annotations: Any = tool.raw.get("annotations")
    hints = [words for key, words in _HINTS if is_object(annotations) and annotations.get(key) is True]
    return ShownTool(
        name=tool.name,
        title=bound_text(tool.raw.get("title"), DESCRIPTION_LENGTH_MAX),
        description=bound_text(tool.description, DESCRIPTION_LENGTH_MAX),
        hints=hints,
    )
