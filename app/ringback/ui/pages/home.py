"""The first page: what runs, what is stuck, whose endpoint fails, and charts of the last hours."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.domain.call import Call, CallStatus
from ringback.domain.call_histories import CallMarks
from ringback.domain.call_rows import CallFilter
from ringback.domain.cursor import Page
from ringback.domain.principal import Caller
from ringback.domain.webhook import Webhook, WebhookHealth
from ringback.services.insights import ServiceStatus
from ringback.ui.access import view_rows
from ringback.ui.call_filters import FAILED_OUTCOMES
from ringback.ui.charts.home_charts import draw_home_charts, rank_upstreams, sum_hours
from ringback.ui.context import UiContext
from ringback.ui.formats import session_path
from ringback.ui.page_routes import PageRoutes
from ringback.ui.pages.home_cards import draw_cards
from ringback.ui.redirects import redirect
from ringback.ui.rendering import Renderer
from ringback.ui.viewer import Viewer

LISTED_ROWS: Final = 5
"""Of each of the short lists. Links lead to the whole ones."""
NEWEST_CALLS: Final = 8
DAY_HOURS: Final = 24
WEEK_HOURS: Final = 7 * DAY_HOURS


@dataclass(frozen=True, slots=True, kw_only=True)
class ShortLists:
    """The newest rows of each kind."""

    newest_calls: Sequence[CallMarks]
    """With their callbacks, and whether a client came back for them."""
    waiting_calls: Page[Call, str]
    """Of all principals: those among the newest calls. A page has a next position if older calls were not looked at."""
    failed_calls: Sequence[Call]
    failing_webhooks: Sequence[Webhook]


class HomePages:
    def __init__(self, context: UiContext, renderer: Renderer) -> None:
        self._context = context
        self._renderer = renderer

    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [pages.page(path, self.show_home, in_session_portal=True) for path in ("", "/")]

    async def show_home(self, request: Request, viewer: Viewer) -> Response:
        if viewer.client_session_id is not None:
            return redirect(f"{viewer.pages_path}{session_path(viewer.client_session_id)}")
        caller = view_rows(self._context.services.operators, viewer, request, operation="ui_home")
        hours = WEEK_HOURS if request.query_params.get("hours") == str(WEEK_HOURS) else DAY_HOURS
        principal = caller.principal if caller.operator is not None and not caller.sees_all_principals else None
        overview = await self._context.services.insights.read_overview(caller, hours=hours)
        return self._renderer.render_page(
            "home.html",
            viewer,
            title="Overview",
            overview=overview,
            is_week=hours == WEEK_HOURS,
            principal=principal,
            of_principal="" if principal is None else f"&{urlencode({'principal': principal})}",
            cards=draw_cards(overview, await self._read_status(caller)),
            sums=sum_hours(overview.hours),
            charts=draw_home_charts(overview.hours, shows_queues=caller.sees_all_principals),
            upstreams=rank_upstreams(overview.upstreams),
            lists=await self._list_rows(caller),
        )

    async def _read_status(self, caller: Caller) -> ServiceStatus | None:
        """The ages of the queues, which are of all principals; None for a caller that sees the rows of one."""
        return await self._context.services.insights.get_status(caller) if caller.sees_all_principals else None

    async def _list_rows(self, caller: Caller) -> ShortLists:
        services = self._context.services
        waiting, failed = CallFilter(status=CallStatus.INPUT_REQUIRED), CallFilter(outcomes=FAILED_OUTCOMES)
        return ShortLists(
            newest_calls=await services.call_histories.list_marks(caller, None, position=None, limit=NEWEST_CALLS),
            waiting_calls=await services.calls.list_calls(caller, waiting, position=None, limit=LISTED_ROWS),
            failed_calls=await services.calls.list_calls(caller, failed, position=None, limit=LISTED_ROWS),
            failing_webhooks=await services.webhooks.list_webhooks(
                caller, WebhookHealth.FAILING, position=None, limit=LISTED_ROWS
            ),
        )
