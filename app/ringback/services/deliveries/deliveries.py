"""Read deliveries and their attempts."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from ringback.domain.cursor import Page
from ringback.domain.delivery import OPEN_STATES, Attempt, Delivery
from ringback.domain.delivery_rows import DeliveryFilter, UndeliveredCounts
from ringback.domain.errors import NotFound
from ringback.domain.ids import DeliveryId, EventId, WebhookId, is_well_formed_id
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.webhook import Webhook

UNDELIVERED_COUNTED_MAX: Final = 200
"""Dead or held deliveries of one webhook that a page counts: a page of 50 webhooks visits 10,000 entries of an index."""


class Deliveries:
    def __init__(self, *, store: Store) -> None:
        self._store = store

    async def list_deliveries(
        self, caller: Caller, delivery_filter: DeliveryFilter, *, position: str | None, limit: int
    ) -> Page[Delivery, str]:
        caller.require_scope(Scope.READ)
        return await self._store.scan(
            caller.principal,
            lambda tx: tx.deliveries.list_page(
                caller.listed_principal, delivery_filter, position=position, limit=limit
            ),
        )

    async def count_undelivered(
        self, caller: Caller, webhooks: Sequence[Webhook]
    ) -> Mapping[WebhookId, UndeliveredCounts]:
        """For each of these webhooks, its held and dead deliveries, each counted up to `UNDELIVERED_COUNTED_MAX`."""
        caller.require_scope(Scope.READ)
        own = [each.id for each in webhooks if caller.listed_principal in {None, each.principal}]
        return await self._store.scan(
            caller.principal, lambda tx: tx.deliveries.count_undelivered(own, limit=UNDELIVERED_COUNTED_MAX)
        )

    async def find_latest(self, caller: Caller, deliveries: Sequence[Delivery]) -> Mapping[DeliveryId, Delivery]:
        """For each of these deliveries that was sent again, its latest generation. `deliveries`: one page at most."""
        caller.require_scope(Scope.READ)
        sent = [each for each in deliveries if caller.listed_principal in {None, each.principal}]
        if not sent:
            return {}
        return await self._store.scan(caller.principal, lambda tx: find_latest_generations(tx, sent))

    async def get_delivery(self, caller: Caller, delivery_id: str) -> tuple[Delivery, Sequence[Attempt]]:
        caller.require_scope(Scope.READ)

        async def read(tx: Transaction) -> tuple[Delivery, Sequence[Attempt]]:
            delivery = await get_own_delivery(tx, caller.principal, delivery_id)
            return delivery, await tx.deliveries.list_attempts(delivery.id)

        return await self._store.read(read)


async def find_latest_generations(tx: Transaction, deliveries: Sequence[Delivery]) -> Mapping[DeliveryId, Delivery]:
    """For each of these deliveries that was sent again, its latest generation.

    An open delivery is the latest of its event, and a gap envelope has no event.
    """
    events: defaultdict[WebhookId, dict[EventId, None]] = defaultdict(dict)
    for each in deliveries:
        if each.event_id is not None and each.state not in OPEN_STATES:
            events[each.webhook_id][each.event_id] = None
    latest = {
        (webhook_id, found.event_id): found
        for webhook_id, event_ids in events.items()
        for found in await tx.webhook_deliveries.latest_by_event(webhook_id, list(event_ids))
    }
    pairs = [(each, latest.get((each.webhook_id, each.event_id))) for each in deliveries]
    return {each.id: found for each, found in pairs if found is not None and found.generation > each.generation}


async def get_own_delivery(tx: Transaction, principal: Principal, delivery_id: str) -> Delivery:
    if is_well_formed_id("dlv", delivery_id):
        delivery = await tx.deliveries.get(DeliveryId(delivery_id))
        if delivery is not None and delivery.principal == principal:
            return delivery
    raise NotFound("No delivery of yours has this id. List yours: GET /v1/deliveries")
