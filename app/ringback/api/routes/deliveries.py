"""Deliveries over REST: list them, read their attempts, send one again."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from ringback.api.authentication import AuthenticatedRoute
from ringback.api.context import ServicesDep
from ringback.api.idempotency_keys import refuse_idempotency_key
from ringback.api.operator_access import ListCallerDep, OwnerCallerDep
from ringback.api.problems import AUTHENTICATED_ERRORS, BODY_ERRORS, problem_responses
from ringback.domain import errors
from ringback.domain.cursor import CursorList, decode_id_cursor, decode_redelivery_position, encode_next_cursor
from ringback.schemas import examples
from ringback.schemas.deliveries import (
    DeliveryListQuery,
    DeliveryPageView,
    DeliveryWithAttemptsView,
    RedeliverBody,
    RedeliveredView,
    RequestedDeliveryView,
)

router = APIRouter(prefix="/v1/deliveries", tags=["deliveries"], route_class=AuthenticatedRoute)

DeliveryIdPath = Annotated[str, Path(description="A delivery's id.", examples=[examples.DELIVERY_ID])]


@router.get("", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.InvalidRequest, errors.InvalidCursor))
async def list_deliveries(
    query: Annotated[DeliveryListQuery, Query()], services: ServicesDep, caller: ListCallerDep
) -> DeliveryPageView:
    """List deliveries to your webhooks, newest first; `state=dead` lists those without a success."""
    position = decode_id_cursor(CursorList.DELIVERIES, query.cursor)
    page = await services.deliveries.list_deliveries(caller, query.to_filter(), position=position, limit=query.limit)
    return DeliveryPageView.from_deliveries(
        page, encode_next_cursor(CursorList.DELIVERIES, page), shows_owner=caller.is_operator
    )


@router.post(
    "/redeliver",
    status_code=202,
    dependencies=[refuse_idempotency_key()],
    responses=problem_responses(
        *AUTHENTICATED_ERRORS, *BODY_ERRORS, errors.InvalidCursor, errors.QuotaExceeded, errors.ShuttingDown
    ),
)
async def redeliver_many(body: RedeliverBody, services: ServicesDep, caller: OwnerCallerDep) -> RedeliveredView:
    """Send the deliveries again that match all members, to all your webhooks, oldest first: by default, the dead ones.

    At most 2,000 in one request. The other pending deliveries of their webhooks are due now, too. With `dry_run` the response
    has the numbers and nothing changes.
    """
    position = None if body.cursor is None else decode_redelivery_position(body.cursor)
    return RedeliveredView.from_redelivery(
        await services.bulk_redeliveries.redeliver(caller, body.to_filter(), position=position, dry_run=body.dry_run)
    )


@router.get("/{delivery_id}", responses=problem_responses(*AUTHENTICATED_ERRORS, errors.NotFound))
async def read_delivery(
    delivery_id: DeliveryIdPath, services: ServicesDep, caller: OwnerCallerDep
) -> DeliveryWithAttemptsView:
    """Read a delivery with all its attempts."""
    delivery, attempts = await services.deliveries.get_delivery(caller, delivery_id)
    return DeliveryWithAttemptsView.from_delivery_and_attempts(delivery, attempts, shows_owner=caller.is_operator)


@router.post(
    "/{delivery_id}/redeliver",
    status_code=202,
    dependencies=[refuse_idempotency_key()],
    responses=problem_responses(
        *AUTHENTICATED_ERRORS, errors.NotFound, errors.QuotaExceeded, errors.ShuttingDown, errors.WebhookNotActive
    ),
)
async def redeliver(
    delivery_id: DeliveryIdPath, services: ServicesDep, caller: OwnerCallerDep
) -> RequestedDeliveryView:
    """Send a delivery again with the same `webhook-id`, now. If it has not ended yet, its next attempt is made now.

    The other pending deliveries of its webhook are due now, too. The receiver's circuit breakers let one attempt through.
    """
    requested = await services.replays.redeliver_delivery(caller, delivery_id)
    return RequestedDeliveryView.from_requested(requested, shows_owner=caller.is_operator)
