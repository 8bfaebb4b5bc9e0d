"""The first page: what runs, what is stuck, whose endpoint fails, and charts of the last hours."""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.domain.principal import Caller
from ringback.services.live.home_listing import HomeContent, HomeListing
from ringback.ui.charts.home_charts import draw_home_charts, rank_upstreams, sum_hours
from ringback.ui.context import UiContext
from ringback.ui.formats import session_path
from ringback.ui.page_handlers import PageHandlers
from ringback.ui.page_routes import PageRoutes
from ringback.ui.pages.home_cards import draw_cards
from ringback.ui.query_parameters import with_query
from ringback.ui.redirects import redirect
from ringback.ui.viewer import Viewer

DAY_HOURS: Final = 24
WEEK_HOURS: Final = 7 * DAY_HOURS


class HomePages(PageHandlers):
    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [pages.page(path, self.show_home, in_session_portal=True) for path in ("", "/")]

    async def show_home(self, request: Request, viewer: Viewer) -> Response:
        if viewer.client_session_id is not None:
            return redirect(f"{viewer.pages_path}{session_path(viewer.client_session_id)}")
        caller = self._view_rows(viewer, request, "ui_home")
        listing = make_home_listing(self._context, request, caller)
        content = await self._services.live_lists.read_list(caller, listing)
        live = {"hours": listing.hours, "principal": _find_shown_principal(caller)}
        return self._renderer.render_page(
            "home.html",
            viewer,
            title="Overview",
            live_path=with_query(self._find_path(viewer, "/live"), live),
            **describe_home(content, caller, hours=listing.hours),
        )


def make_home_listing(context: UiContext, request: Request, caller: Caller) -> HomeListing:
    """Of the hours that the request's query names."""
    insights = context.services.insights
    hours = WEEK_HOURS if request.query_params.get("hours") == str(WEEK_HOURS) else DAY_HOURS
    return HomeListing(insights=insights, hours=hours, upstreams=tuple(insights.list_usable_upstreams(caller)))


def describe_home(content: HomeContent, caller: Caller, *, hours: int, is_live: bool = False) -> Mapping[str, Any]:
    """The values of `home_state.html`."""
    overview, principal = content.overview, _find_shown_principal(caller)
    return {
        "overview": overview,
        "as_of": content.as_of,
        "is_live": is_live,
        "is_week": hours == WEEK_HOURS,
        "principal": principal,
        "of_principal": "" if principal is None else f"&{urlencode({'principal': principal})}",
        "cards": draw_cards(overview, content.ages),
        "sums": sum_hours(overview.hours),
        "charts": draw_home_charts(overview.hours, shows_queues=caller.sees_all_principals),
        "upstreams": rank_upstreams(overview.upstreams),
        "lists": content.lists,
    }


def _find_shown_principal(caller: Caller) -> str | None:
    """The principal whose rows an operator asked for."""
    return caller.principal if caller.is_operator and not caller.sees_all_principals else None
