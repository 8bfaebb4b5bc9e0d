"""The part that every change and every removal of a webhook by its owner has in its transaction."""

from dataclasses import dataclass, replace
from typing import Final

from ringback.domain.change_subscriptions import CHANGE_SUBSCRIPTIONS_TOPIC
from ringback.domain.event_subscriptions import SubscriptionEnd, end_subscription
from ringback.domain.ports import Transaction
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.webhook import OWNER_STATE_TRANSITIONS, Webhook, WebhookState, with_state
from ringback.domain.webhook_health import RELEASE_BATCH_SIZE
from ringback.domain.webhook_rows import WebhookPart
from ringback.services.webhooks.attempt_scheduling import AttemptScheduler, OpenDeliveries
from ringback.services.webhooks.verification import WebhookVerification
from ringback.services.webhooks.webhook_checks import (
    require_effective_outcomes,
    require_subscription_quota,
    subscribes_to_changes,
)

CANCELLED_DELIVERIES_BATCH_SIZE: Final = 200
"""Deliveries that one transaction cancels when a webhook is removed: about 10 ms on a slow core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdatedWebhook:
    webhook: Webhook
    scheduled: OpenDeliveries | None
    """What happens with its open deliveries; None if the change is no reason for attempts now."""


async def update_webhook(
    tx: Transaction,
    verification: WebhookVerification,
    attempts: AttemptScheduler,
    previous: Webhook,
    updated: Webhook,
    *,
    requests_attempts: bool = False,
) -> UpdatedWebhook:
    """Store the change. Held deliveries are sent as soon as the webhook becomes active or is resumed.

    Disabling a webhook also holds them, so that an enable finds all of them, however much later it comes.
    Deliveries that wait for a later attempt are due at once with a new URL, secret or header, or if `requests_attempts`.

    The caller holds the lock of the webhook's row. Under the lock of its log, a call that ends meanwhile has inserted its
    deliveries before, so that they are released, or finds the changed webhook.
    """
    await tx.event_log.get_head(updated.principal, lock=True)
    require_effective_outcomes(updated)
    if subscribes_to_changes(updated) and updated.state is not WebhookState.DISABLED:
        await require_subscription_quota(tx, updated)  # a disabled webhook holds no subscription
    if subscribes_to_changes(previous) or subscribes_to_changes(updated):
        tx.notify(CHANGE_SUBSCRIPTIONS_TOPIC)
    updated = await _store_change(tx, verification, previous, updated)
    is_released = previous.state is not updated.state or previous.paused_at is not None
    if is_released and updated.state is WebhookState.ACTIVE and not updated.holds_deliveries():
        await tx.webhook_deliveries.release_held(updated.id, now=tx.now(), limit=RELEASE_BATCH_SIZE)
        tx.notify(DELIVERY_DUE_TOPIC)
    if _is_stopped(updated) and not _is_stopped(previous):
        await tx.webhook_deliveries.hold_pending(updated.id, limit=RELEASE_BATCH_SIZE)  # the dispatcher holds the rest
    scheduled = None
    if requests_attempts or is_released or _reach(updated) != _reach(previous):
        scheduled = await attempts.schedule_now(tx, updated)
    return UpdatedWebhook(webhook=updated, scheduled=scheduled)


async def _store_change(
    tx: Transaction, verification: WebhookVerification, previous: Webhook, updated: Webhook
) -> Webhook:
    """A webhook that its owner disables goes on to catch up: the events before are as safe as deliveries that are held."""
    is_stopped = updated.state is WebhookState.DISABLED
    catch_up = await tx.catch_ups.get(updated.id) if is_stopped else None
    updated = await verification.update_webhook(tx, previous, updated)
    if catch_up is not None:
        await tx.catch_ups.save(catch_up)  # the store has removed it
    return updated


async def remove_webhook_batch(tx: Transaction, webhook: Webhook) -> bool:
    """Cancel a batch of the webhook's open deliveries; remove it if that was the last one. Return whether it is removed.

    If more follow, the webhook is disabled, unless it is pending verification, so that it matches no more events. The caller
    holds the lock of the webhook's row.
    """
    if subscribes_to_changes(webhook):
        tx.notify(CHANGE_SUBSCRIPTIONS_TOPIC)
    # A call that ends meanwhile has inserted its deliveries before, or does not find the webhook.
    await tx.event_log.get_head(webhook.principal, lock=True)
    if webhook.is_subscription and (subscription := await tx.subscriptions.get(webhook.id)) is not None:
        await tx.subscriptions.save(end_subscription(subscription, SubscriptionEnd.REMOVED, now=tx.now()))
    cancelled = await tx.webhook_deliveries.cancel_open(webhook.id, now=tx.now(), limit=CANCELLED_DELIVERIES_BATCH_SIZE)
    if cancelled < CANCELLED_DELIVERIES_BATCH_SIZE:
        await tx.webhooks.delete(webhook.id)
        return True
    await tx.catch_ups.remove(webhook.id)  # a webhook that its owner has disabled before may still catch up
    # A webhook that waits for a proof keeps its state: its owner could enable a disabled one without the proof.
    if WebhookState.DISABLED in OWNER_STATE_TRANSITIONS[webhook.state]:
        disabled = replace(with_state(webhook, WebhookState.DISABLED), updated_at=tx.now())
        await tx.webhooks.update(disabled, WebhookPart.STATE)
    return False


def _is_stopped(webhook: Webhook) -> bool:
    """Whether the owner has paused or disabled the webhook."""
    return webhook.paused_at is not None or webhook.state is WebhookState.DISABLED


def _reach(webhook: Webhook) -> tuple[object, ...]:
    """The settings whose change may let the receiver accept deliveries that it refused before."""
    return webhook.url, webhook.secrets, webhook.headers
