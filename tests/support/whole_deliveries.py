"""Deliveries with their bodies, which lists do not read."""

from ringback.domain.delivery import Delivery
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal

_DELIVERIES_MAX = 5_000
_BYTES_MAX = 2**40


async def list_whole_deliveries(
    tx: Transaction, principal: Principal, where: DeliveryFilter | None = None
) -> list[Delivery]:
    """The deliveries of this principal with their bodies, newest first."""
    page = await tx.deliveries.list_page(principal, where or DeliveryFilter(), position=None, limit=_DELIVERIES_MAX)
    return list(await tx.deliveries.list_whole([each.id for each in page], bytes_max=_BYTES_MAX))
