"""The part that every change of a webhook by its owner has in its transaction."""

from dataclasses import dataclass

from ringback.domain.change_subscriptions import CHANGE_SUBSCRIPTIONS_TOPIC
from ringback.domain.ports import Transaction
from ringback.domain.signals import DELIVERY_DUE_TOPIC
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_health import RELEASE_BATCH_SIZE
from ringback.services.attempt_scheduling import AttemptScheduler, OpenDeliveries
from ringback.services.verification import WebhookVerification
from ringback.services.webhook_checks import (
    require_effective_outcomes,
    require_subscription_quota,
    subscribes_to_changes,
)


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
    updated = await verification.update_webhook(tx, previous, updated)
    is_released = previous.state is not updated.state or previous.paused_at is not None
    if is_released and updated.state is WebhookState.ACTIVE and not updated.holds_deliveries():
        await tx.webhook_deliveries.release_held(updated.id, now=tx.now(), limit=RELEASE_BATCH_SIZE)
        tx.notify(DELIVERY_DUE_TOPIC)
    if updated.paused_at is not None and previous.paused_at is None:
        await tx.webhook_deliveries.hold_pending(updated.id, limit=RELEASE_BATCH_SIZE)  # the dispatcher holds the rest
    scheduled = None
    if requests_attempts or is_released or _reach(updated) != _reach(previous):
        scheduled = await attempts.schedule_now(tx, updated)
    return UpdatedWebhook(webhook=updated, scheduled=scheduled)


def _reach(webhook: Webhook) -> tuple[object, ...]:
    """The settings whose change may let the receiver accept deliveries that it refused before."""
    return webhook.url, webhook.secrets, webhook.headers
