"""How subscriptions end: by their client, with their key, or with their event type.

    unsubscribed        the webhook and its open deliveries are gone at once; the row of the subscription is a tombstone
    key revoked         nothing matches any more, open deliveries are cancelled, and the receiver gets a `terminated` envelope;
    type removed        its webhook goes with that
    removed over REST   as with a revoked key
    abandoned           as with a revoked key: without an expiry, suspended, and without a success for a week
    not refreshed       the janitor removes the webhook once its open deliveries have ended; a trigger writes the tombstone

Each function is one bounded batch within its caller's transaction.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from ringback.domain.attempt_category import AttemptCategory, wire_reason
from ringback.domain.change_subscriptions import CHANGE_SUBSCRIPTIONS_TOPIC
from ringback.domain.clock import seconds
from ringback.domain.event_subscriptions import TOMBSTONE_SECONDS, EventSubscription, SubscriptionEnd, end_subscription
from ringback.domain.ids import KeyId, WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.principal import Caller, Scope
from ringback.domain.retry import DAY
from ringback.domain.webhook import Webhook, WebhookHealth, WebhookState
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.recorder import Recorder
from ringback.protocol.mcp_events.errors import (
    CallbackFailure,
    ErrorProfile,
    EventError,
    callback_endpoint_error,
    event_not_found,
    forbidden,
    subscription_not_found,
    to_error_object,
)
from ringback.services.audit import record_own_change
from ringback.services.webhooks.subscription_log import log_end
from ringback.services.webhooks.webhook_checks import subscribes_to_changes
from ringback.services.webhooks.webhook_updates import CANCELLED_DELIVERIES_BATCH_SIZE, remove_webhook_batch

ENDED_BATCH_SIZE: Final = 20
"""Subscriptions that one transaction ends: each has some statements and an envelope to seal."""
KEYS_BATCH_SIZE: Final = 50
"""Keys that one transaction of the janitor checks: a row each."""

FAILING_BATCH_SIZE: Final = 50
"""Failing webhooks that one transaction of the janitor reads."""
ABANDONED_SECONDS: Final = 7.0 * DAY
"""A subscription without expiry whose receiver fails for this long is ended (mcp-events §6: sustained failure). Results are
kept as long, so nothing that its deliveries name is left."""

REMOVED: Final = forbidden("The subscription was removed by its owner or by an operator. Subscribe again if you may.")
KEY_ENDED: Final = forbidden("The API key that subscribed was revoked or has expired. Subscribe with a valid key.")

StillEnds = Callable[[Webhook | None, EventSubscription], bool]
"""Whether the reason to end a subscription holds for its locked rows. The webhook is None if it is removed already."""


async def unsubscribe_batch(tx: Transaction, caller: Caller, subscription_id: WebhookId, *, is_first: bool) -> bool:
    """Return whether the caller's subscription is gone. Later batches stop if its client has subscribed again meanwhile.

    Raises `EventError` (NotFound) in the first batch for a subscription that never was, or ended too long ago.
    """
    webhook = await tx.webhooks.get(subscription_id)
    await tx.event_log.get_head(caller.principal, lock=True)
    if webhook is None:  # a first subscribe may have inserted it while this unit waited for the log
        webhook = await tx.webhooks.get(subscription_id)
    subscription = await tx.subscriptions.get(subscription_id)
    if is_first and not _is_remembered(subscription, tx.now()):
        raise subscription_not_found()
    if not is_first and (subscription is None or subscription.ended_at is None):
        return True
    if subscription is not None:
        if subscription.ended_at is None:
            log_end(tx, subscription, SubscriptionEnd.UNSUBSCRIBED)
            await record_own_change(tx, caller, "remove_webhook", subscription_id)
        await tx.subscriptions.save(end_subscription(subscription, SubscriptionEnd.UNSUBSCRIBED, now=tx.now()))
    return webhook is None or await remove_webhook_batch(tx, webhook)


async def terminate_batch(
    tx: Transaction,
    recorder: Recorder,
    reasons: Mapping[WebhookId, EventError],
    *,
    end: SubscriptionEnd = SubscriptionEnd.TERMINATED,
    still_ends: StillEnds | None = None,
    rows_max: int | None = None,
) -> bool:
    """End live subscriptions, and send their receivers these reasons. Return whether all of them have ended.

    At most `CANCELLED_DELIVERIES_BATCH_SIZE` deliveries of all of them are cancelled, or `rows_max`. As in every unit, webhooks
    are locked before logs, and these in the order of principals. `still_ends` decides on the locked rows: a client may have
    refreshed or resubscribed since the caller read its list. Such a subscription stays.
    """
    webhooks = {each.id: each for each in await tx.webhooks.get_many(list(reasons), lock=True)}
    for principal in sorted({webhook.principal for webhook in webhooks.values()}):
        await tx.event_log.get_head(principal, lock=True)
    left = _part_of(CANCELLED_DELIVERIES_BATCH_SIZE, rows_max)
    for subscription_id, error in reasons.items():
        webhook = webhooks.get(subscription_id)
        subscription = await tx.subscriptions.get(subscription_id)
        if (
            subscription is None
            or subscription.ended_at is not None
            or (still_ends is not None and not still_ends(webhook, subscription))
        ):
            continue
        if webhook is None:
            await tx.subscriptions.save(end_subscription(subscription, SubscriptionEnd.EXPIRED, now=tx.now()))
            log_end(tx, subscription, SubscriptionEnd.EXPIRED)
            continue
        left -= await _cancel_open(tx, webhook, limit=left)
        if left <= 0:
            return False
        await tx.subscriptions.save(end_subscription(subscription, end, now=tx.now()))
        log_end(tx, subscription, end, reason=error.message)
        await recorder.enqueue_terminated(tx, webhook, to_error_object(error, ErrorProfile(subscription.error_profile)))
    return True


async def terminate_of_keys(
    tx: Transaction, recorder: Recorder, *, after: str, rows_max: int | None = None
) -> str | None:
    """End subscriptions of the next key that has ended. Return the key after which the next batch goes on; None at the end."""
    keys_max = _part_of(KEYS_BATCH_SIZE, rows_max)
    keys = await tx.subscriptions.list_keys(after=after, limit=keys_max)
    for key_id in keys:
        if not await _may_subscribe(tx, key_id):
            return key_id if await _terminate_of_key(tx, recorder, key_id, rows_max=rows_max) else after
        after = key_id
    return after if len(keys) == keys_max else None


async def remove_subscription_batch(tx: Transaction, recorder: Recorder, subscription_id: WebhookId) -> bool:
    """End the subscription for its owner or an operator, and notify its receiver. Return whether it has ended."""
    return await terminate_batch(tx, recorder, {subscription_id: REMOVED}, end=SubscriptionEnd.REMOVED)


async def terminate_abandoned(
    tx: Transaction, recorder: Recorder, *, position: str | None, rows_max: int | None = None
) -> str | None:
    """End subscriptions without expiry whose receivers have failed for a week, among a page of failing webhooks.

    Return the position from which the next page goes on; None after the last one.
    """
    page_size, ended_max = _part_of(FAILING_BATCH_SIZE, rows_max), _part_of(ENDED_BATCH_SIZE, rows_max)
    page = await tx.webhooks.list_page(None, WebhookHealth.FAILING, position=position, limit=page_size)
    abandoned = [webhook for webhook in page if _is_abandoned(webhook, tx.confirmed_now())][:ended_max]
    reasons = {each.id: _describe_failure(each) for each in abandoned}
    if not await terminate_batch(
        tx,
        recorder,
        reasons,
        still_ends=lambda webhook, subscription: (
            webhook is not None and subscription.ttl_ms is None and _is_abandoned(webhook, tx.confirmed_now())
        ),
        rows_max=rows_max,
    ):
        return position
    if len(abandoned) == ended_max:
        return abandoned[-1].id
    return page[-1].id if len(page) == page_size else None


async def terminate_of_event(tx: Transaction, recorder: Recorder, event_name: str) -> bool:
    """End subscriptions to an event type that does not exist any more. Return whether none is left."""
    subscriptions = await tx.subscriptions.list_of_event(event_name, limit=ENDED_BATCH_SIZE)
    have_ended = await terminate_batch(tx, recorder, dict.fromkeys(subscriptions, event_not_found(event_name)))
    return have_ended and len(subscriptions) < ENDED_BATCH_SIZE


async def _terminate_of_key(tx: Transaction, recorder: Recorder, key_id: KeyId, *, rows_max: int | None) -> bool:
    limit = _part_of(ENDED_BATCH_SIZE, rows_max)
    subscriptions = await tx.subscriptions.list_of_key(key_id, limit=limit)
    have_ended = await terminate_batch(
        tx,
        recorder,
        dict.fromkeys(subscriptions, KEY_ENDED),
        still_ends=lambda _, subscription: subscription.key_id == key_id,
        rows_max=rows_max,
    )
    return have_ended and len(subscriptions) < limit


async def _may_subscribe(tx: Transaction, key_id: KeyId) -> bool:
    """Whether the key is valid now. Its scopes cannot change."""
    key = await tx.api_keys.get(key_id)
    return (
        key is not None
        and key.is_valid(tx.confirmed_now())
        and not {Scope.WEBHOOKS, Scope.ADMIN}.isdisjoint(key.scopes)
    )


def _is_abandoned(webhook: Webhook, now: datetime) -> bool:
    """Also one that an earlier batch has let expire, and whose deliveries were more than that batch cancels."""
    return (
        webhook.is_subscription
        and (webhook.expires_at is None or webhook.expires_at <= now)
        and webhook.state is WebhookState.SUSPENDED
        and webhook.failing_since is not None
        and now - webhook.failing_since >= seconds(ABANDONED_SECONDS)
    )


def _describe_failure(webhook: Webhook) -> EventError:
    known = wire_reason(webhook.last_error or AttemptCategory.TIMEOUT)
    # Unreadable secrets are no failure of the receiver, and none of the six reasons: it got no request.
    reason = CallbackFailure(known) if known in set(CallbackFailure) else CallbackFailure.CONNECTION_REFUSED
    return callback_endpoint_error(reason, "The receiver has failed for a week. Subscribe again once it works.")


async def _cancel_open(tx: Transaction, webhook: Webhook, *, limit: int) -> int:
    """Cancel open deliveries; return their number. At the limit more may be left: until they are cancelled, nothing matches."""
    if subscribes_to_changes(webhook):
        tx.notify(CHANGE_SUBSCRIPTIONS_TOPIC)
    cancelled = await tx.webhook_deliveries.cancel_open(webhook.id, now=tx.now(), limit=limit)
    if cancelled == limit:
        await tx.webhooks.update(replace(webhook, expires_at=tx.now()), WebhookPart.SETTINGS)
    return cancelled


def _part_of(most: int, rows_max: int | None) -> int:
    """As many of `most` as `rows_max` is of a whole batch, because the janitor halves a batch that took too long."""
    if rows_max is None:
        return most
    return min(most, max(1, most * rows_max // CANCELLED_DELIVERIES_BATCH_SIZE))


def _is_remembered(subscription: EventSubscription | None, now: datetime) -> bool:
    if subscription is None:
        return False
    return subscription.ended_at is None or now - subscription.ended_at < seconds(TOMBSTONE_SECONDS)
