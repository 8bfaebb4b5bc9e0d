"""Read deliveries and their attempts."""

from collections.abc import Mapping, Sequence
from typing import Final

from ringback.domain.cursor import Page
from ringback.domain.delivery import Attempt, Delivery
from ringback.domain.delivery_rows import DeliveryFilter, UndeliveredCounts
from ringback.domain.errors import NotFound
from ringback.domain.ids import DeliveryId, WebhookId, is_well_formed_id
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

    async def get_delivery(self, caller: Caller, delivery_id: str) -> tuple[Delivery, Sequence[Attempt]]:
        caller.require_scope(Scope.READ)

        async def read(tx: Transaction) -> tuple[Delivery, Sequence[Attempt]]:
            delivery = await get_own_delivery(tx, caller.principal, delivery_id)
            return delivery, await tx.deliveries.list_attempts(delivery.id)

        return await self._store.read(read)


async def get_own_delivery(tx: Transaction, principal: Principal, delivery_id: str) -> Delivery:
    if is_well_formed_id("dlv", delivery_id):
        delivery = await tx.deliveries.get(DeliveryId(delivery_id))
        if delivery is not None and delivery.principal == principal:
            return delivery
    raise NotFound("No delivery of yours has this id. List yours: GET /v1/deliveries")
