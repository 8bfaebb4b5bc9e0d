"""Deliveries that an owner asks for: a test, and what was sent before once more. From here on they are like all others."""

from collections.abc import Sequence

from ringback.domain.clock import seconds
from ringback.domain.delivery import Delivery, DeliveryState, Kind, again, give_up_seconds
from ringback.domain.ids import Ids
from ringback.domain.ports import Transaction
from ringback.domain.signals import DUE
from ringback.domain.webhook import Webhook
from ringback.notifier.body import body_of_test
from ringback.notifier.places import place_at


class OnDemand:
    """Every method runs inside a transaction of its caller's."""

    def __init__(self, *, ids: Ids) -> None:
        self._ids = ids

    async def test(self, tx: Transaction, webhook: Webhook) -> Delivery:
        """A test for this one webhook. It is in no log: nobody polls it, no other webhook hears it, no cursor waits for it."""
        now, event_id = tx.now(), self._ids.event()
        safe = await place_at(tx, webhook.principal, await _safe_seq(tx, webhook))
        delivery = Delivery(
            id=self._ids.delivery(),
            principal=webhook.principal,
            webhook_id=webhook.id,
            event_id=event_id,
            call_id=None,
            seq=None,
            body=body_of_test(webhook, event_id=event_id, safe=safe, now=now),
            state=DeliveryState.HELD if webhook.holds() else DeliveryState.PENDING,
            due_at=now,
            give_up_at=now + seconds(give_up_seconds(Kind.EVENT, webhook.retries, ordered=webhook.ordered)),
            created_at=now,
        )
        await self._insert(tx, [delivery])
        return delivery

    async def again(self, tx: Transaction, webhook: Webhook, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """The next generation of each: the stored body once more, under the same webhook-id."""
        renewed = [
            again(
                delivery,
                delivery_id=self._ids.delivery(),
                holds=webhook.holds(),
                profile=webhook.retries,
                now=tx.now(),
            )
            for delivery in deliveries
        ]
        await self._insert(tx, renewed)
        return renewed

    async def _insert(self, tx: Transaction, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            await tx.deliveries.insert(deliveries)
            tx.ring(DUE)


async def _safe_seq(tx: Transaction, webhook: Webhook) -> int:
    """The place at or before which everything of this webhook was delivered or abandoned."""
    catch_up = await tx.catch_ups.get(webhook.id)
    head = await tx.event_places.head(webhook.principal) if catch_up is None else catch_up.seq
    lowest_open = (await tx.deliveries.watermarks([webhook.id])).get(webhook.id)
    return head if lowest_open is None else lowest_open - 1
