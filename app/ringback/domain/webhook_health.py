"""How a webhook's receiver is doing: what an answer, or none, changes about the webhook.

    active ──(no success for 96 hours)──▶ suspended ──(a probe is answered)──▶ active

Suspension is for receivers that are gone: what is for them is held, in bounds, and one delivery an hour asks whether they are
back. Shorter failures are the breaker's. Both are told in the same place, so that they cannot disagree.

A look-up that failed (`Category.LOOK_UP_FAILED`) is no failure of the receiver: while our name servers are down, every look-up
fails so. It sets no `failing_since` and suspends nothing, however long it lasts. A webhook whose name servers never answer is
therefore never suspended. Its deliveries die with their ladder, so the age at which they are given up bounds what waits for it.
A name that does not exist (`Category.NAME_NOT_FOUND`) is like a receiver that is gone, and is suspended like one.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from ringback.domain.circuit_breaker import (
    CLOSED_BREAKER,
    SUSPENDED_BREAKER_POLICY,
    WEBHOOK_BREAKER_POLICY,
    breaker_after_failure,
)
from ringback.domain.clock import format_iso, seconds
from ringback.domain.delivery import AttemptCategory
from ringback.domain.event import Event, EventName
from ringback.domain.ids import EventId
from ringback.domain.retry import HOUR
from ringback.domain.webhook import Webhook, WebhookState

SUSPEND_AFTER_SECONDS: Final = 96 * HOUR
"""As long as the longest ladder: by then everything that waited when the failures began has been given up."""
LAST_DELIVERY_RESOLUTION_SECONDS: Final = 1.0
"""`last_delivery_at` is told to the second; writing it for every delivery would make one hot row of each webhook."""
HELD_DELIVERIES_MAX: Final = 10_000
"""Deliveries held for one webhook. What comes after them is told of as a gap, once the receiver is back."""

RELEASE_BATCH_SIZE: Final = 500
"""Released in one unit of work: some ten milliseconds. The janitor goes on with the rest."""


def is_healthy(webhook: Webhook) -> bool:
    """Whether it answered the last attempt. Any other gets one attempt at a time."""
    return webhook.last_delivery_at is not None and webhook.failing_since is None and webhook.breaker == CLOSED_BREAKER


def webhook_after_success(webhook: Webhook, *, now: datetime) -> Webhook:
    """The webhook after an attempt that was answered with 2xx; the same value if nothing is worth writing down."""
    if (
        is_healthy(webhook)
        and webhook.state is not WebhookState.SUSPENDED
        and _is_recent(webhook.last_delivery_at, now)
    ):
        return webhook
    return replace(
        webhook,
        state=WebhookState.ACTIVE if webhook.state is WebhookState.SUSPENDED else webhook.state,
        last_delivery_at=now,
        last_error=None,
        failing_since=None,
        breaker=CLOSED_BREAKER,
    )


def webhook_after_failure(
    webhook: Webhook, category: AttemptCategory, *, now: datetime, random_fraction: float
) -> Webhook:
    """The webhook after an attempt that was not; suspended if that has been so for too long, and the receiver's doing."""
    is_receiver_failure = category is not AttemptCategory.LOOK_UP_FAILED
    failing_since = webhook.failing_since or (now if is_receiver_failure else None)
    is_past_suspension_age = failing_since is not None and now - failing_since >= seconds(SUSPEND_AFTER_SECONDS)
    should_suspend = is_receiver_failure and is_past_suspension_age and webhook.state is WebhookState.ACTIVE
    state = WebhookState.SUSPENDED if should_suspend else webhook.state
    policy = SUSPENDED_BREAKER_POLICY if state is WebhookState.SUSPENDED else WEBHOOK_BREAKER_POLICY
    return replace(
        webhook,
        state=state,
        last_error=str(category),
        failing_since=failing_since,
        breaker=breaker_after_failure(webhook.breaker, policy, now=now, random_fraction=random_fraction),
    )


def webhook_after_loss(webhook: Webhook, seq: int) -> Webhook:
    """The webhook after an event of this place was given up."""
    return replace(webhook, missed_from=seq if webhook.missed_from is None else min(webhook.missed_from, seq))


def health_event_name(previous: Webhook, updated: Webhook) -> EventName | None:
    """The event that tells the owner, if there is something to tell."""
    match previous.state, updated.state:
        case WebhookState.ACTIVE, WebhookState.SUSPENDED:
            return EventName.WEBHOOK_SUSPENDED
        case WebhookState.SUSPENDED, WebhookState.ACTIVE:
            return EventName.WEBHOOK_RECOVERED
        case _:
            return None


def build_webhook_event(webhook: Webhook, name: EventName, *, event_id: EventId, seq: int, now: datetime) -> Event:
    return Event(
        id=event_id,
        principal=webhook.principal,
        seq=seq,
        name=name,
        call_id=None,
        client_session_id=webhook.client_session_id,
        correlation_id=webhook.correlation_id,
        upstream=None,
        tool=None,
        data=_webhook_event_data(webhook),
        created_at=now,
    )


def _webhook_event_data(webhook: Webhook) -> Mapping[str, Any]:
    """Its URL is the owner's own words, and may hold a secret of his; the id is enough."""
    return {
        "webhook_id": webhook.id,
        "state": str(webhook.state),
        "last_error": webhook.last_error,
        "failing_since": None if webhook.failing_since is None else format_iso(webhook.failing_since),
    }


def _is_recent(instant: datetime | None, now: datetime) -> bool:
    return instant is not None and now - instant < seconds(LAST_DELIVERY_RESOLUTION_SECONDS)
