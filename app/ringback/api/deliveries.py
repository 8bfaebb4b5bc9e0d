"""Deliveries over REST: what was sent to whom, what came of it, and sending it once more."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from ringback.api.auth import Asking
from ringback.api.context import Behind
from ringback.api.guarded_route import GuardedRoute
from ringback.api.paging import page_from
from ringback.api.problems import GUARDED, documented
from ringback.api.schemas import examples
from ringback.api.schemas.deliveries import (
    DeliveriesQuestion,
    DeliveryPageView,
    DeliveryView,
    DeliveryWithAttemptsView,
)
from ringback.domain import errors
from ringback.domain.cursor import List, decode_id

router = APIRouter(prefix="/v1/deliveries", tags=["deliveries"], route_class=GuardedRoute)

DeliveryIdPath = Annotated[str, Path(description="A delivery's id.", examples=[examples.DELIVERY_ID])]


@router.get("", responses=documented(*GUARDED, errors.InvalidRequest, errors.InvalidCursor))
async def list_deliveries(
    question: Annotated[DeliveriesQuestion, Query()], behind: Behind, caller: Asking
) -> DeliveryPageView:
    """List deliveries to your webhooks, newest first; `state=dead` shows what was given up."""
    before = decode_id(List.DELIVERIES, question.cursor)
    found = await behind.deliveries.page(caller, question.where(), before=before, limit=question.limit)
    page = page_from(List.DELIVERIES, found)
    return DeliveryPageView.of(page.things, page.next_cursor)


@router.get("/{delivery_id}", responses=documented(*GUARDED, errors.NotFound))
async def read_delivery(delivery_id: DeliveryIdPath, behind: Behind, caller: Asking) -> DeliveryWithAttemptsView:
    """Read a delivery with every attempt."""
    delivery, attempts = await behind.deliveries.get(caller, delivery_id)
    return DeliveryWithAttemptsView.with_attempts(delivery, attempts)


@router.post(
    "/{delivery_id}/redeliver",
    status_code=202,
    responses=documented(*GUARDED, errors.NotFound, errors.QuotaExceeded, errors.ShuttingDown, errors.WebhookNotActive),
)
async def redeliver(delivery_id: DeliveryIdPath, behind: Behind, caller: Asking) -> DeliveryView:
    """Send one delivery again, under the same `webhook-id`. If it is on its way already, that one is answered."""
    return DeliveryView.of(await behind.replays.redeliver(caller, delivery_id))
