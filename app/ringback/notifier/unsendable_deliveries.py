"""Deliveries and webhooks that cannot be sent now: unreadable, paused for too long, or of a webhook without a secret."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.circuit_breaker import CLOSED_BREAKER, SUSPENDED_BREAKER_POLICY, breaker_after_failure
from ringback.domain.clock import seconds
from ringback.domain.delivery import Delivery, DeliveryState, RetryDecision, build_delivery_update
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.webhook import Webhook, WebhookState, with_unreadable_secrets
from ringback.domain.webhook_health import RELEASE_BATCH_SIZE
from ringback.domain.webhook_rows import WebhookPart
from ringback.measurements import Measurements
from ringback.notifier.attempts import record_losses
from ringback.notifier.follow_ups import FollowUp

log = logging.getLogger(__name__)

GIVE_UP_BATCH_SIZE: Final = 200
"""Deliveries that one transaction gives up."""
LEFT_TO_OTHERS_SECONDS: Final = 60.0
"""A node lacks a key until it is restarted with it; one look a minute finds out that the key was accepted as lost."""


class UnsendableDeliveries:
    """What a lease does with them. Nodes that lack a key leave them to nodes that have it."""

    def __init__(self, measurements: Measurements, *, on_given_up: Callable[[WebhookId], None]) -> None:
        """`on_given_up` is called when a batch of the webhook's deliveries is given up or held: more may be left."""
        self._measurements = measurements
        self._on_given_up = on_given_up
        self._left_until: dict[WebhookId, datetime] = {}
        """Webhooks that this node cannot read and others can, and until when it does not look at them."""

    def list_left_webhooks(self, now: datetime) -> set[WebhookId]:
        self._left_until = {webhook_id: until for webhook_id, until in self._left_until.items() if until > now}
        return set(self._left_until)

    def leave_to_others(self, tx: Transaction, webhook_id: WebhookId) -> None:
        """Lease nothing of this webhook for a while: other nodes have a key that this one does not have."""
        log.warning("webhook.left_to_other_nodes", extra={"webhook_id": webhook_id})
        self._left_until[webhook_id] = tx.now() + seconds(LEFT_TO_OTHERS_SECONDS)

    async def drop_unreadable(self, tx: Transaction, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """End deliveries whose body cannot be decrypted, record them as missed, and return the others.

        A node that lacks a key of others gives the deliveries back instead, as they were.
        """
        unsent = [replace(each, attempts=each.attempts - 1) for each in deliveries if each.is_unreadable]
        if unsent and await tx.sealing_keys.lacks_any():
            await self._give_back(tx, unsent)
            return [each for each in deliveries if not each.is_unreadable]
        dead = RetryDecision(state=DeliveryState.DEAD)
        await tx.delivery_queue.apply_updates(
            [build_delivery_update(each, dead, category=AttemptCategory.UNREADABLE, now=tx.now()) for each in unsent]
        )
        await record_losses(tx, unsent, self._measurements)
        return [each for each in deliveries if not each.is_unreadable]

    async def find_follow_ups(self, tx: Transaction, paused: Sequence[Webhook]) -> Sequence[FollowUp]:
        """What follows for webhooks whose breakers stop the attempts: nothing for most, which would be a unit for each."""
        expired = await tx.delivery_maintenance.list_webhooks_to_give_up(
            [webhook.id for webhook in paused], now=tx.confirmed_now()
        )
        follow_ups: list[FollowUp] = []
        for webhook in paused:
            if webhook.id in expired:
                follow_ups.append(FollowUp(webhook, partial(self.give_up_expired, webhook_id=webhook.id)))
            if webhook.is_subscription and webhook.state is WebhookState.SUSPENDED:
                follow_ups.append(FollowUp(webhook, partial(self.stop_retry_windows, webhook_id=webhook.id)))
        return follow_ups

    async def give_up_expired(self, tx: Transaction, *, webhook_id: WebhookId) -> None:
        await tx.webhooks.get(webhook_id)  # locked before its deliveries
        given_up = await tx.delivery_queue.give_up_expired(webhook_id, now=tx.confirmed_now(), limit=GIVE_UP_BATCH_SIZE)
        await record_losses(tx, given_up, self._measurements)
        if given_up:  # large ones may be left, however few these are
            tx.on_commit(partial(self._on_given_up, webhook_id))

    async def stop_retry_windows(self, tx: Transaction, *, webhook_id: WebhookId) -> None:
        """Hold what became pending again after the suspension: time does not count against it until the client refreshes."""
        webhook = await tx.webhooks.get(webhook_id)
        if webhook is not None and webhook.state is WebhookState.SUSPENDED:
            held = await tx.webhook_deliveries.hold_pending(webhook_id, limit=RELEASE_BATCH_SIZE, suspended=True)
            if held:
                tx.on_commit(partial(self._on_given_up, webhook_id))

    async def suspend_unsignable(self, tx: Transaction, *, webhook: Webhook) -> None:
        """Suspend a webhook whose secrets cannot be decrypted. It is probed once an hour: a new secret or the old key helps."""
        breaker = breaker_after_failure(CLOSED_BREAKER, SUSPENDED_BREAKER_POLICY, now=tx.now(), random_fraction=0.5)
        latest = await tx.webhooks.get(webhook.id) or webhook  # locked: its owner may be changing it
        suspended = replace(
            with_unreadable_secrets(latest), failing_since=latest.failing_since or tx.now(), breaker=breaker
        )
        await tx.webhooks.update(suspended, WebhookPart.STATE, WebhookPart.HEALTH)
        await tx.webhook_deliveries.hold_pending(webhook.id, limit=RELEASE_BATCH_SIZE)

    async def _give_back(self, tx: Transaction, deliveries: Sequence[Delivery]) -> None:
        pending = RetryDecision(state=DeliveryState.PENDING)
        await tx.delivery_queue.apply_updates(
            [build_delivery_update(each, pending, category=each.last_category, now=tx.now()) for each in deliveries]
        )
        for webhook_id in {each.webhook_id for each in deliveries}:
            self.leave_to_others(tx, webhook_id)
        tx.notify(DELIVERY_DUE_TOPIC)
