"""Claiming what is due: which lanes, how much of each, under one lease."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from ringback.domain.breaker import CLOSED, OF_SUSPENDED, after_failure
from ringback.domain.clock import seconds
from ringback.domain.delivery import Category, Delivery, DeliveryState, Verdict, settled
from ringback.domain.health import RELEASE_STEP
from ringback.domain.ids import Ids, WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.lanes import Lanes, Slot
from ringback.notifier.settlement import write_off
from ringback.notifier.targets import Targets

LANES_AT_ONCE: Final = 64
"""Lanes looked at in one unit of work, which takes some two milliseconds of the one writer's time."""
GIVEN_UP_AT_ONCE: Final = 200
PLACES_MAX: Final = 10_000
"""Ordered webhooks with so many sessions that a claim visits a part of them only, and whose next part is remembered. The one
that was claimed for longest ago makes room, as those do that were removed; it begins again at its first session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leased:
    """A delivery in our hands: to be sent before its lease runs out, to the webhook as it was when it was leased."""

    delivery: Delivery
    webhook: Webhook
    slot: Slot


@dataclass(frozen=True, slots=True)
class Claimed:
    leased: Sequence[Leased]
    more: bool
    """Whether other lanes may be due that were not looked at."""


class Claims:
    def __init__(
        self, *, store: Store, ids: Ids, lanes: Lanes, targets: Targets, owner: str, lease_seconds: float
    ) -> None:
        self._store = store
        self._ids = ids
        self._lanes = lanes
        self._targets = targets
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._lanes_after = ""
        self._keys_after: dict[WebhookId, str] = {}

    async def claim(self) -> Claimed:
        """Lease what is due and has a share, spread over lanes; those that waited longest come first."""
        if self._lanes.free() <= 0:
            return Claimed([], more=False)
        return await self._store.write(self._claim)

    def slot_at_birth(self, tx: Transaction, webhook: Webhook) -> Slot | None:
        """A slot for a delivery that is being born, as long as nothing of its lane waits and the lane has a share."""
        if webhook.ordered or webhook.rate_per_second is not None or self._lanes.waits(webhook.id):
            return None
        origin = self._targets.origin(webhook.url)
        if self._lanes.share(webhook, origin, now=tx.now()) <= 0:
            return None
        return self._enter(tx, webhook, origin)

    async def _claim(self, tx: Transaction) -> Claimed:
        without = self._lanes.without_share(now=tx.now())
        due = await tx.delivery_queue.lanes(now=tx.now(), without=without, limit=LANES_AT_ONCE, after=self._lanes_after)
        tx.at_end(partial(self._go_on, due.next_place))
        webhooks = {webhook.id: webhook for webhook in await tx.webhooks.by_ids(due)}
        origins = {self._targets.origin(webhook.url) for webhook in webhooks.values()}
        self._lanes.learn(await tx.origins.breakers(origins))
        leased: list[Leased] = []
        more = len(due) == LANES_AT_ONCE or due.next_place is not None
        for left, webhook_id in zip(range(len(due), 0, -1), due, strict=True):
            webhook = webhooks.get(webhook_id)
            if webhook is None or webhook.state is WebhookState.DISABLED:
                await self._drop(tx, webhook_id)
            elif webhook.state is WebhookState.PENDING_VERIFICATION:
                await tx.delivery_lanes.hold(webhook_id, limit=RELEASE_STEP)  # it was active until its URL changed
            elif webhook.unreadable:
                await self._suspend(tx, webhook)
            else:
                found = await self._lease(tx, webhook, fair_share=max(1, self._lanes.free() // left))
                leased += found.leased
                more = more or found.more
        return Claimed(leased, more=more)

    def _go_on(self, place: str | None, committed: bool) -> None:  # noqa: FBT001 - what `at_end` tells
        if committed:
            self._lanes_after = place or ""

    async def _lease(self, tx: Transaction, webhook: Webhook, *, fair_share: int) -> Claimed:
        now, origin = tx.now(), self._targets.origin(webhook.url)
        share = min(fair_share, self._lanes.share(webhook, origin, now=now))
        if share <= 0:
            self._lanes.wait(webhook, origin, now=now)
            if self._lanes.paused(webhook, origin, now=now):
                await write_off(tx, await tx.delivery_queue.give_up(webhook.id, now=now, limit=GIVEN_UP_AT_ONCE))
            return Claimed([], more=False)
        found = await tx.delivery_queue.lease(
            webhook.id,
            now=now,
            owner=self._owner,
            token=self._ids.lease(),
            until=now + seconds(self._lease_seconds),
            limit=share,
            ordered=webhook.ordered,
            after=self._keys_after.get(webhook.id, ""),
        )
        tx.at_end(partial(self._keys_go_on, webhook.id, found.next_place))
        if len(found) < share and not webhook.ordered:
            self._lanes.drained(webhook.id)
        else:
            self._lanes.wait(webhook, origin, now=now, idle=len(found) < share and found.next_place is None)
        deliveries: Sequence[Delivery] = found
        if any(delivery.unreadable for delivery in found):
            deliveries = await self._without_unreadable(tx, found)
        return Claimed(
            [Leased(delivery=each, webhook=webhook, slot=self._enter(tx, webhook, origin)) for each in deliveries],
            more=len(found) < share and found.next_place is not None,
        )

    def _keys_go_on(self, webhook_id: WebhookId, place: str | None, committed: bool) -> None:  # noqa: FBT001 - as above
        if not committed:
            return
        self._keys_after.pop(webhook_id, None)
        if place:
            self._keys_after[webhook_id] = place  # behind all others
            if len(self._keys_after) > PLACES_MAX:
                del self._keys_after[next(iter(self._keys_after))]

    async def _without_unreadable(self, tx: Transaction, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """End what can never be sent, as a loss that its receiver is told of, and go on with the others."""
        dead = Verdict(state=DeliveryState.DEAD)
        unsent = [replace(each, attempts=each.attempts - 1) for each in deliveries if each.unreadable]
        await tx.delivery_queue.settle(
            [settled(each, dead, category=Category.UNREADABLE, now=tx.now()) for each in unsent]
        )
        await write_off(tx, unsent)
        return [each for each in deliveries if not each.unreadable]

    async def _suspend(self, tx: Transaction, webhook: Webhook) -> None:
        """Nothing can be signed for it. Once an hour it is looked at again: its owner, or its old key, may have mended it."""
        pause = after_failure(CLOSED, OF_SUSPENDED, now=tx.now(), chance=0.5)
        suspended = replace(webhook, failing_since=webhook.failing_since or tx.now(), breaker=pause)
        await tx.webhooks.update(suspended, WebhookPart.STATE, WebhookPart.HEALTH)
        await tx.delivery_lanes.hold(webhook.id, limit=RELEASE_STEP)

    def _enter(self, tx: Transaction, webhook: Webhook, origin: str) -> Slot:
        slot = self._lanes.enter(webhook, origin, now=tx.now())
        tx.at_end(partial(self._undo, webhook, slot))
        return slot

    def _undo(self, webhook: Webhook, slot: Slot, committed: bool) -> None:  # noqa: FBT001 - what `at_end` tells
        if not committed:
            self._lanes.undo(webhook, slot)

    async def _drop(self, tx: Transaction, webhook_id: WebhookId) -> None:
        """Cancel what is due for a webhook that was switched off, or is gone."""
        now = tx.now()
        unwanted = await tx.delivery_queue.lease(
            webhook_id,
            now=now,
            owner=self._owner,
            token=self._ids.lease(),
            until=now,
            limit=GIVEN_UP_AT_ONCE,
            ordered=False,
        )
        verdict = Verdict(state=DeliveryState.CANCELLED)
        unsent = [replace(delivery, attempts=delivery.attempts - 1) for delivery in unwanted]
        await tx.delivery_queue.settle(
            [settled(delivery, verdict, category=delivery.last_category, now=now) for delivery in unsent]
        )
