"""The deliveries: the list with its filters, and the page of one delivery with its attempts.

A page shows what REST shows: no bodies, because their resume tokens belong to the receiver.
"""

from collections.abc import Collection, Mapping
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.cursor import CursorList, decode_id_cursor, encode_next_cursor
from ringback.domain.delivery import OPEN_STATES, DeliveryState
from ringback.domain.errors import InvalidRequest
from ringback.schemas.deliveries import DeliveryListQuery
from ringback.ui.notices import find_notice
from ringback.ui.page_handlers import PageHandlers
from ringback.ui.page_routes import Form, PageRoutes
from ringback.ui.pages.redelivery import is_redeliverable
from ringback.ui.query_parameters import keep_filters, list_filters, read_query, with_query
from ringback.ui.redirects import redirect
from ringback.ui.viewer import Viewer

PAGE_SIZE: Final = 50
_CHOICES: Final[Mapping[str, Any]] = {
    "states": [(str(state), str(state)) for state in DeliveryState],
    "categories": [(str(category), str(category)) for category in AttemptCategory],
}
"""Of the form."""


class DeliveryPages(PageHandlers):
    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [
            pages.page("/deliveries", self.list_deliveries, in_session_portal=True),
            pages.page("/deliveries/{delivery_id}", self.show_delivery, in_session_portal=True),
            pages.action("/deliveries/{delivery_id}/redeliver", self.redeliver),
        ]

    async def list_deliveries(self, request: Request, viewer: Viewer) -> Response:
        try:
            query = read_query(request, DeliveryListQuery, ignored=_list_ignored_filters(request.query_params))
        except InvalidRequest as refused:
            return self._refuse_filter(request, viewer, refused.detail)
        caller = self._view_rows(viewer, request, "ui_list_deliveries")
        await self._require_session_of_call(viewer, caller, query.call_id)
        position = decode_id_cursor(CursorList.DELIVERIES, query.cursor)
        deliveries = await self._services.deliveries.list_deliveries(
            caller, query.to_filter(), position=position, limit=PAGE_SIZE
        )
        latest = await self._services.deliveries.find_latest(caller, deliveries)
        hook = query.webhook_id
        pause_end = None if hook is None else await self._services.webhooks.find_pause_end(caller, hook)
        path, filters = self._find_path(viewer, "/deliveries"), list_filters(query)
        cursor = encode_next_cursor(CursorList.DELIVERIES, deliveries)
        return self._renderer.render_page(
            "deliveries.html",
            viewer,
            title="Deliveries",
            shows_owner=self._shows_owner(viewer),
            problem=None,
            deliveries=deliveries,
            latest=latest,
            now=self._context.clock.now(),
            paused_until=pause_end,
            filters=filters,
            choices=_CHOICES,
            redeliver_path=self._find_redelivery(viewer, query, filters),
            links_webhooks=viewer.client_session_id is None,
            live_path=_find_live_path(path, query, filters),
            older=None if cursor is None else with_query(path, {**filters, "cursor": cursor}),
            newest=with_query(path, filters) if query.cursor else None,
            done=find_notice(request),
        )

    def _refuse_filter(self, request: Request, viewer: Viewer, problem: str) -> Response:
        """The form as it was sent, the reason, and no rows."""
        return self._renderer.render_page(
            "deliveries.html",
            viewer,
            title="Deliveries",
            status_code=HTTPStatus.UNPROCESSABLE_ENTITY,
            problem=problem,
            shows_owner=self._shows_owner(viewer),
            deliveries=(),
            filters=keep_filters(request, DeliveryListQuery),
            choices=_CHOICES,
            redeliver_path=None,
            live_path=None,
            older=None,
            newest=None,
            done=None,
        )

    def _find_redelivery(self, viewer: Viewer, query: DeliveryListQuery, filters: dict[str, str]) -> str | None:
        """The page that counts what matches, and then sends it again; None if the filter allows no bulk redelivery."""
        if not viewer.may_change_webhooks or not is_redeliverable(query, shows_owner=self._shows_owner(viewer)):
            return None
        return with_query(self._find_path(viewer, "/deliveries/redeliver"), filters)

    async def show_delivery(self, request: Request, viewer: Viewer) -> Response:
        delivery_id = request.path_params["delivery_id"]
        caller = await self._act_for_owner(viewer, delivery_id, "ui_read_delivery")
        delivery, attempts = await self._services.deliveries.get_delivery(caller, delivery_id)
        await self._require_session_of_call(viewer, caller, delivery.call_id)
        latest = (await self._services.deliveries.find_latest(caller, [delivery])).get(delivery.id)
        return self._renderer.render_page(
            "delivery.html",
            viewer,
            title=delivery.id,
            section="Deliveries",
            shows_owner=self._shows_owner(viewer),
            delivery=delivery,
            attempts=attempts,
            shows_webhook=viewer.client_session_id is None,
            latest=latest,
            may_redeliver=viewer.may_change_webhooks and delivery.event_id is not None and latest is None,
            is_open=delivery.state in OPEN_STATES,
            now=self._context.clock.now(),
            paused_until=await self._services.webhooks.find_pause_end(caller, delivery.webhook_id),
            done=find_notice(request),
        )

    async def redeliver(self, request: Request, viewer: Viewer, form: Form) -> Response:
        """End at the page of the delivery that is sent: a new generation, or the same one if it was open.

        A page that is older than another redelivery sends nothing: it ends at the latest generation, which has its own button.
        """
        del form
        services = self._services
        delivery_id = request.path_params["delivery_id"]
        caller = await self._act_for_owner(viewer, delivery_id, "ui_redeliver")
        delivery, _ = await services.deliveries.get_delivery(caller, delivery_id)
        latest = (await services.deliveries.find_latest(caller, [delivery])).get(delivery.id)
        if latest is not None:
            return redirect(with_query(f"/deliveries/{latest.id}", {"done": "delivery-sent-before"}))
        requested = await services.replays.redeliver_delivery(caller, delivery_id)
        return redirect(with_query(f"/deliveries/{requested.delivery.id}", {"done": "delivery-redelivered"}))


def _list_ignored_filters(query: Mapping[str, str]) -> Collection[str]:
    """The form of the dead letters has `latest` as a hidden field. A viewer who chooses another state cannot remove it."""
    return {"latest"} if query.get("state", DeliveryState.DEAD) != DeliveryState.DEAD else ()


def _find_live_path(path: str, query: DeliveryListQuery, filters: Mapping[str, str]) -> str | None:
    """The live list, for the first page. The pause of one webhook changes without its deliveries, so its list is not live."""
    return None if query.cursor or query.webhook_id else with_query(f"{path}/live", filters)
