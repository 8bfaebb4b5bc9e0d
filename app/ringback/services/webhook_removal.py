"""The removal of a webhook and its open deliveries, in batches."""

from dataclasses import replace
from typing import Final

from ringback.domain.change_subscriptions import CHANGE_SUBSCRIPTIONS_TOPIC
from ringback.domain.event_subscriptions import SubscriptionEnd, end_subscription
from ringback.domain.ports import Transaction
from ringback.domain.webhook import OWNER_STATE_TRANSITIONS, Webhook, WebhookState, with_state
from ringback.domain.webhook_rows import WebhookPart
from ringback.services.webhook_checks import subscribes_to_changes

CANCELLED_DELIVERIES_BATCH_SIZE: Final = 200
"""Deliveries that one transaction cancels when a webhook is removed: about 10 ms on a slow core."""


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
    # A webhook that waits for a proof keeps its state: its owner could enable a disabled one without the proof.
    if WebhookState.DISABLED in OWNER_STATE_TRANSITIONS[webhook.state]:
        disabled = replace(with_state(webhook, WebhookState.DISABLED), updated_at=tx.now())
        await tx.webhooks.update(disabled, WebhookPart.STATE)
    return False
