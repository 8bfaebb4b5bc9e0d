"""The part that every change of a webhook by its owner has in its transaction."""

from ringback.domain.change_subscriptions import CHANGE_SUBSCRIPTIONS_TOPIC
from ringback.domain.ports import Transaction
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_health import RELEASE_BATCH_SIZE
from ringback.services.verification import WebhookVerification
from ringback.services.webhook_checks import (
    require_effective_outcomes,
    require_subscription_quota,
    subscribes_to_changes,
)


async def update_webhook(
    tx: Transaction, verification: WebhookVerification, previous: Webhook, updated: Webhook
) -> Webhook:
    """Store the change. Held deliveries are sent as soon as the webhook becomes active.

    The caller holds the lock of the webhook's row. Under the lock of its log, a call that ends meanwhile has inserted its
    deliveries before, so that they are released, or finds the changed webhook.
    """
    await tx.event_log.get_head(updated.principal, lock=True)
    require_effective_outcomes(updated)
    if subscribes_to_changes(updated) and updated.state is not WebhookState.DISABLED:
        await require_subscription_quota(tx, updated)  # a disabled webhook holds no subscription
    if subscribes_to_changes(previous) or subscribes_to_changes(updated):
        tx.notify(CHANGE_SUBSCRIPTIONS_TOPIC)
    updated = await verification.update_webhook(tx, previous, updated)
    if previous.state is not updated.state is WebhookState.ACTIVE:
        await tx.webhook_deliveries.release_held(updated.id, now=tx.now(), limit=RELEASE_BATCH_SIZE)
        tx.notify(DELIVERY_DUE_TOPIC)
    return updated
