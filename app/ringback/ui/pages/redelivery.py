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
from ringback.ui.notices import read_number
from ringback.ui.page_handlers import PageHandlers
from ringback.ui.page_routes import Form, PageRoutes
from ringback.ui.query_parameters import list_filters, read_filled_fields, read_query, validate, with_query
from ringback.ui.redirects import redirect
from ringback.ui.viewer import Viewer

DONE: Final = "deliveries-redelivered"
_NOT_A_FILTER: Final = frozenset({"latest", "principal", "cursor", "limit"})


def is_redeliverable(query: DeliveryListQuery, *, shows_owner: bool) -> bool:
    """Whether a bulk redelivery can select exactly what the list shows: ended deliveries of one principal.

    `shows_owner`: the list has the deliveries of all principals, unless its filter names one.
    """
    filters = query.model_dump(exclude_none=True, exclude_defaults=True).keys() - _NOT_A_FILTER
    is_ended = query.state is not None and query.state not in OPEN_STATES
    names_owner = (
        query.principal not in {None, ALL_PRINCIPALS} or query.webhook_id is not None or query.call_id is not None
    )
    return is_ended and filters <= RedeliverBody.model_fields.keys() and (names_owner or not shows_owner)


class RedeliveryPages(PageHandlers):
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
        caller = await self._choose_caller(viewer, query, "ui_count_redelivery")
        counted = await self._services.bulk_redeliveries.redeliver(
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
            list_path=with_query(self._find_path(viewer, "/deliveries"), filters),
        )

    async def redeliver_matching(self, request: Request, viewer: Viewer, form: Form) -> Response:
        """Without a rest, end at the list of what is under way; else at the page that sends the rest."""
        del request
        typed = {name: values[0] for name, values in form.fields.items() if values}
        query = validate(DeliveryListQuery, read_filled_fields(typed, DeliveryListQuery) | {"cursor": None})
        body = self._read_body(viewer, query, typed.get("cursor"))
        caller = await self._choose_caller(viewer, query, "ui_redeliver_many")
        done = await self._services.bulk_redeliveries.redeliver(
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
        if not is_redeliverable(query, shows_owner=self._shows_owner(viewer)):
            raise InvalidRequest(
                "This filter allows no bulk redelivery. Choose one state (dead, cancelled or delivered); an operator also "
                "names one principal, webhook or call."
            )
        values: dict[str, Any] = query.model_dump(exclude_none=True, exclude_defaults=True, exclude=set(_NOT_A_FILTER))
        return validate(RedeliverBody, values | ({"cursor": cursor} if cursor else {}))

    async def _choose_caller(self, viewer: Viewer, query: DeliveryListQuery, operation: str) -> Caller:
        if not self._shows_owner(viewer):
            return viewer.caller
        if query.principal is not None and query.principal != ALL_PRINCIPALS:
            return self._services.operators.view_principal(viewer.caller, query.principal, operation=operation)
        return await self._act_for_owner(viewer, query.webhook_id or query.call_id or "", operation)


def _position(body: RedeliverBody) -> RedeliveryPosition | None:
    return None if body.cursor is None else decode_redelivery_position(body.cursor)
