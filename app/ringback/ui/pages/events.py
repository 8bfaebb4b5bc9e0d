"""The event log, newest first: of one principal by its positions, and of all principals by time, for operators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.domain import jsontext
from ringback.domain.cursor import encode_event_time
from ringback.domain.errors import InvalidRequest
from ringback.domain.event import Event
from ringback.domain.principal import Caller
from ringback.schemas.events import EventQuery
from ringback.ui.contents import ShownContent, show_json
from ringback.ui.page_handlers import PageHandlers
from ringback.ui.page_routes import PageRoutes
from ringback.ui.query_parameters import keep_filters, list_filters, read_query, with_query
from ringback.ui.viewer import Viewer

PAGE_SIZE: Final = 50
DATA_LENGTH_MAX: Final = 4_096
"""Characters of one event's data on a page of 50: together 200 KB. The REST API has the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEvent:
    event: Event
    data: ShownContent


class EventPages(PageHandlers):
    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [pages.page("/events", self.list_events)]

    async def list_events(self, request: Request, viewer: Viewer) -> Response:
        try:
            query = read_query(request, EventQuery)
        except InvalidRequest as refused:
            return self._render_list(viewer, keep_filters(request, EventQuery), problem=refused.detail)
        caller = self._view_rows(viewer, request, "ui_list_events")
        events, older = await (self._read_all if caller.sees_all_principals else self._read_own)(caller, query)
        path, filters = self._find_path(viewer, "/events"), list_filters(query)
        return self._render_list(
            viewer,
            filters,
            events=events,
            older=None if older is None else with_query(path, {**filters, "cursor": older}),
            newest=with_query(path, filters) if query.cursor else None,
            live_path=None if query.cursor else with_query(f"{path}/live", filters),
        )

    def _render_list(
        self,
        viewer: Viewer,
        filters: Mapping[str, str],
        *,
        events: Sequence[Event] = (),
        older: str | None = None,
        newest: str | None = None,
        live_path: str | None = None,
        problem: str | None = None,
    ) -> Response:
        """`problem`: why the filter was refused. The page then has the form and no rows."""
        return self._renderer.render_page(
            "events.html",
            viewer,
            title="Events",
            status_code=HTTPStatus.OK if problem is None else HTTPStatus.UNPROCESSABLE_ENTITY,
            problem=problem,
            live_path=live_path,
            events=[show_event(event) for event in events],
            shows_owner=self._shows_owner(viewer),
            filters=filters,
            older=older,
            newest=newest,
        )

    async def _read_all(self, caller: Caller, query: EventQuery) -> tuple[Sequence[Event], str | None]:
        """The events, newest first, and the cursor of older ones."""
        page = await self._services.events.list_latest(caller, query.to_filter(), cursor=query.cursor, limit=PAGE_SIZE)
        return page, None if page.next_position is None else encode_event_time(page.next_position)

    async def _read_own(self, caller: Caller, query: EventQuery) -> tuple[Sequence[Event], str | None]:
        page = await self._services.events.list_own_latest(
            caller, query.to_filter(), cursor=query.cursor, limit=PAGE_SIZE
        )
        return page, page.next_position


def show_event(event: Event) -> ShownEvent:
    """The data is indented only if the page shows about all of it."""
    content = jsontext.dumps(dict(event.data))
    data = show_json(content, characters_max=DATA_LENGTH_MAX, pretty_bytes_max=DATA_LENGTH_MAX)
    return ShownEvent(event=event, data=data)
