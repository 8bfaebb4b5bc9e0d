"""Read deliveries and their attempts."""

from collections.abc import Sequence

from ringback.domain.cursor import Page
from ringback.domain.delivery import Attempt, Delivery
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.errors import NotFound
from ringback.domain.ids import DeliveryId, is_well_formed_id
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope


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
