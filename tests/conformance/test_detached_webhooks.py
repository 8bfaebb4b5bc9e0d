"""What `detached` webhooks are spared: of this call, not tried yet, and not sent again on demand."""

from dataclasses import replace

from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.ids import CallId
from ringback.domain.ports import Store, Transaction
from ringback.domain.webhook import DeliveryCondition
from tests.support.builders import make_delivery, make_webhook
from tests.support.clock import START

DETACHED_CALL = CallId("call_1")


async def test_only_what_detached_webhooks_have_not_been_sent_is_cancelled(store: Store) -> None:
    detached, always = make_webhook(when=DeliveryCondition.DETACHED), make_webhook()
    mine = {"webhook_id": detached.id, "call_id": DETACHED_CALL}
    spared = [make_delivery(**mine, state=state) for state in (DeliveryState.PENDING, DeliveryState.HELD)]
    kept = [
        make_delivery(webhook_id=always.id, call_id=DETACHED_CALL),
        make_delivery(webhook_id=detached.id, call_id=CallId("call_2")),
        make_delivery(**mine, attempts=1),
        make_delivery(**mine, generation=2),
        make_delivery(**mine, state=DeliveryState.LEASED, attempts=1, lease_token="lease_1", lease_until=START),
        make_delivery(**mine, state=DeliveryState.DELIVERED, attempts=1, finished_at=START),
    ]

    async def insert(tx: Transaction) -> None:
        await tx.webhooks.insert(detached)
        await tx.webhooks.insert(always)
        await tx.deliveries.insert([*spared, *kept])

    await store.write(insert)
    await store.write(lambda tx: tx.call_deliveries.cancel_detached(DETACHED_CALL))

    async def stored(delivery: Delivery) -> Delivery | None:
        return await store.read(lambda tx: tx.deliveries.get(delivery.id))

    for delivery in spared:
        assert await stored(delivery) == replace(delivery, state=DeliveryState.CANCELLED, finished_at=START)
    for delivery in kept:
        assert await stored(delivery) == delivery
