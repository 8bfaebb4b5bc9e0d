"""Deliveries that an owner requests: tests and replays. The dispatcher sends them like all others."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from ringback.domain.delivery import Delivery, next_generation
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Transaction
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.webhook import Webhook
from ringback.notifier.log_positions import read_log_position
from ringback.notifier.payload import build_test_body, new_delivery, new_window_stop

BEFORE_OTHERS: Final = timedelta(milliseconds=1)
"""The store's smallest unit of time. Deliveries of one webhook are sent in the order of their due times."""


class RequestedDeliveries:
    """Every method runs inside the caller's transaction."""

    def __init__(self, *, ids: IdGenerator) -> None:
        self._ids = ids

    async def insert_test(self, tx: Transaction, webhook: Webhook) -> Delivery:
        """Insert a test for this webhook. It has no event in the log, so no client polls it and no cursor waits for it.

        It is due before the other deliveries: if the webhook gets one attempt to show whether it works, that is the test.
        """
        now, event_id = tx.now(), self._ids.new_event_id()
        watermark = await read_log_position(tx, webhook.principal, await find_watermark_seq(tx, webhook))
        counts = await tx.webhook_deliveries.count_open(webhook.id, now=now, limit=1)
        delivery = new_delivery(
            webhook,
            delivery_id=self._ids.new_delivery_id(),
            event_id=event_id,
            seq=None,
            body=build_test_body(webhook, event_id=event_id, watermark=watermark, now=now),
            now=now,
            due_at=min(now, counts.first_due_at or now) - BEFORE_OTHERS,
        )
        await self._insert(tx, [delivery])
        return delivery

    async def lock_log(self, tx: Transaction, webhook: Webhook) -> None:
        """Lock the log before the deliveries of `insert_replays` are read, so that an erasure deletes their replays too.

        The caller has locked the webhook.
        """
        await tx.event_log.get_head(webhook.principal, lock=True)

    async def insert_replays(
        self, tx: Transaction, webhook: Webhook, deliveries: Sequence[Delivery]
    ) -> Sequence[Delivery]:
        """Insert the next generation of each delivery: it sends the stored body again under the same webhook-id.

        The deliveries were read after `lock_log`, with their bodies. One whose body cannot be read gets none: the copy would
        have no body, also once the missing key is back.
        """
        replays = [
            next_generation(
                delivery,
                delivery_id=self._ids.new_delivery_id(),
                is_held=webhook.holds_deliveries(),
                schedule=webhook.retry_schedule,
                now=tx.now(),
                stopped=new_window_stop(webhook, now=tx.now()),
            )
            for delivery in deliveries
            if not delivery.is_unreadable
        ]
        await self._insert(tx, replays)
        return replays

    async def _insert(self, tx: Transaction, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            await tx.deliveries.insert(deliveries)
            tx.notify(DELIVERY_DUE_TOPIC)


async def find_watermark_seq(tx: Transaction, webhook: Webhook) -> int:
    """The sequence number at or before which everything of this webhook was delivered or given up."""
    catch_up = await tx.catch_ups.get(webhook.id)
    head = await tx.event_log.get_head(webhook.principal) if catch_up is None else catch_up.seq
    lowest_open = (await tx.deliveries.lowest_open_seqs([webhook.id])).get(webhook.id)
    return head if lowest_open is None else lowest_open - 1
