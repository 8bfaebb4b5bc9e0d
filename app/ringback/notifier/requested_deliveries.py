"""Deliveries that an owner asks for: a test, and what was sent before once more. From here on they are like all others."""

from collections.abc import Sequence

from ringback.domain.clock import seconds
from ringback.domain.delivery import Delivery, DeliveryKind, DeliveryState, give_up_seconds, next_generation
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Transaction
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.webhook import Webhook
from ringback.notifier.log_positions import read_log_position
from ringback.notifier.payload import build_test_body


class RequestedDeliveries:
    """Every method runs inside a transaction of its caller's."""

    def __init__(self, *, ids: IdGenerator) -> None:
        self._ids = ids

    async def insert_test(self, tx: Transaction, webhook: Webhook) -> Delivery:
        """A test for this one webhook. It is in no log: nobody polls it, no other webhook hears it, no cursor waits for it."""
        now, event_id = tx.now(), self._ids.new_event_id()
        watermark = await read_log_position(tx, webhook.principal, await _watermark_seq(tx, webhook))
        delivery = Delivery(
            id=self._ids.new_delivery_id(),
            principal=webhook.principal,
            webhook_id=webhook.id,
            event_id=event_id,
            call_id=None,
            seq=None,
            body=build_test_body(webhook, event_id=event_id, watermark=watermark, now=now),
            state=DeliveryState.HELD if webhook.holds_deliveries() else DeliveryState.PENDING,
            due_at=now,
            give_up_at=now + seconds(give_up_seconds(DeliveryKind.EVENT, webhook.retries, ordered=webhook.ordered)),
            created_at=now,
        )
        await self._insert(tx, [delivery])
        return delivery

    async def insert_replays(
        self, tx: Transaction, webhook: Webhook, deliveries: Sequence[Delivery]
    ) -> Sequence[Delivery]:
        """The next generation of each: the stored body once more, under the same webhook-id."""
        replays = [
            next_generation(
                delivery,
                delivery_id=self._ids.new_delivery_id(),
                is_held=webhook.holds_deliveries(),
                profile=webhook.retries,
                now=tx.now(),
            )
            for delivery in deliveries
        ]
        await self._insert(tx, replays)
        return replays

    async def _insert(self, tx: Transaction, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            await tx.deliveries.insert(deliveries)
            tx.notify(DELIVERY_DUE_TOPIC)


async def _watermark_seq(tx: Transaction, webhook: Webhook) -> int:
    """The place at or before which everything of this webhook was delivered or abandoned."""
    catch_up = await tx.catch_ups.get(webhook.id)
    head = await tx.event_log.get_head(webhook.principal) if catch_up is None else catch_up.seq
    lowest_open = (await tx.deliveries.lowest_open_seqs([webhook.id])).get(webhook.id)
    return head if lowest_open is None else lowest_open - 1
