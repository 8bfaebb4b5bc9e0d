"""Sends all deliveries again that match the filter of a list: first a page with their number, then the action.

    GET  /ui/deliveries/redeliver?state=dead&…           "1,203 deliveries would be sent again"
    POST /ui/deliveries/redeliver                        sends 2,000 at most ──303──▶ the same page, with a cursor to the rest

The filter has the members of a bulk redelivery over REST. A filter with other members allows none, because it would send
deliveries again that the list does not show.
"""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.domain.cursor import RedeliveryPosition, decode_redelivery_position, encode_redelivery_position
from ringback.domain.delivery import OPEN_STATES
from ringback.domain.errors import InvalidRequest
from ringback.domain.principal import ALL_PRINCIPALS, Caller, Scope
from ringback.schemas.deliveries import DeliveryListQuery, RedeliverBody
from ringback.ui.access import act_for_owner, shows_owner
from ringback.ui.context import UiContext
from ringback.ui.notices import read_number
from ringback.ui.page_routes import Form, PageRoutes
from ringback.ui.query_parameters import list_filters, read_filled_fields, read_query, validate, with_query
from ringback.ui.redirects import redirect
from ringback.ui.rendering import Renderer
from ringback.ui.viewer import Viewer

DONE: Final = "deliveries-redelivered"
_NOT_A_FILTER: Final = frozenset({"latest", "principal", "cursor", "limit"})


def is_redeliverable(context: UiContext, viewer: Viewer, query: DeliveryListQuery) -> bool:
    """Whether a bulk redelivery can select exactly what the list shows: ended deliveries of one principal."""
    filters = query.model_dump(exclude_none=True, exclude_defaults=True).keys() - _NOT_A_FILTER
    is_ended = query.state is not None and query.state not in OPEN_STATES
    return is_ended and filters <= RedeliverBody.model_fields.keys() and _names_owner(context, viewer, query)


def _names_owner(context: UiContext, viewer: Viewer, query: DeliveryListQuery) -> bool:
    """A bulk redelivery acts for one principal. An operator's list has those of all, unless its filter names one."""
    if not shows_owner(context, viewer):
        return True
    is_named = query.principal not in {None, ALL_PRINCIPALS}
    return is_named or query.webhook_id is not None or query.call_id is not None


class RedeliveryPages:
    def __init__(self, context: UiContext, renderer: Renderer) -> None:
        self._context = context
        self._renderer = renderer

    def make_routes(self, pages: PageRoutes) -> list[Route]:
        """They come before the page of one delivery, whose path matches these paths too."""
        return [
            pages.page("/deliveries/redeliver", self.count_matching),
            pages.action("/deliveries/redeliver", self.redeliver_matching),
        ]

    async def count_matching(self, request: Request, viewer: Viewer) -> Response:
        viewer.caller.require_scope(Scope.WEBHOOKS)
        query = read_query(request, DeliveryListQuery)
        body = self._read_body(viewer, query, request.query_params.get("cursor"))
        caller = await self._act_for_owner(viewer, query, operation="ui_count_redelivery")
        counted = await self._context.services.bulk_redeliveries.redeliver(
            caller, body.to_filter(), position=_position(body), dry_run=True
        )
        filters = list_filters(query)
        return self._renderer.render_page(
            "redelivery.html",
            viewer,
            title="Redeliver all that match",
            section="Deliveries",
            counted=counted,
            filters=filters,
            cursor=body.cursor,
            sent=read_number(request.query_params.get("sent", "")),
            list_path=with_query(f"{self._renderer.find_path(viewer)}/deliveries", filters),
        )

    async def redeliver_matching(self, request: Request, viewer: Viewer, form: Form) -> Response:
        """Without a rest, end at the list of what is under way; else at the page that sends the rest."""
        del request
        typed = {name: values[0] for name, values in form.fields.items() if values}
        query = validate(DeliveryListQuery, read_filled_fields(typed, DeliveryListQuery) | {"cursor": None})
        body = self._read_body(viewer, query, typed.get("cursor"))
        caller = await self._act_for_owner(viewer, query, operation="ui_redeliver_many")
        done = await self._context.services.bulk_redeliveries.redeliver(
            caller, body.to_filter(), position=_position(body), dry_run=False
        )
        sent = read_number(typed.get("sent", "")) + done.redelivered
        filters = list_filters(query)
        if done.next_position is None:
            filters.pop("state")
            return redirect(with_query("/deliveries", {**filters, "done": DONE, "sent": sent}))
        rest = {**filters, "cursor": encode_redelivery_position(done.next_position), "sent": sent}
        return redirect(with_query("/deliveries/redeliver", rest))

    def _read_body(self, viewer: Viewer, query: DeliveryListQuery, cursor: str | None) -> RedeliverBody:
        if not is_redeliverable(self._context, viewer, query):
            raise InvalidRequest(
                "This filter allows no bulk redelivery. Choose one state (dead, cancelled or delivered); an operator also "
                "names one principal, webhook or call."
            )
        values: dict[str, Any] = query.model_dump(exclude_none=True, exclude_defaults=True, exclude=set(_NOT_A_FILTER))
        return validate(RedeliverBody, values | ({"cursor": cursor} if cursor else {}))

    async def _act_for_owner(self, viewer: Viewer, query: DeliveryListQuery, *, operation: str) -> Caller:
        operators = self._context.services.operators
        if not shows_owner(self._context, viewer):
            return viewer.caller
        if query.principal is not None and query.principal != ALL_PRINCIPALS:
            return operators.view_principal(viewer.caller, query.principal, operation=operation)
        return await act_for_owner(operators, viewer, query.webhook_id or query.call_id or "", operation=operation)


def _position(body: RedeliverBody) -> RedeliveryPosition | None:
    return None if body.cursor is None else decode_redelivery_position(body.cursor)
