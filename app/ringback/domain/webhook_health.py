"""The health of a webhook: what a successful or failed attempt changes.

    active ──(no success for 96 hours)──▶ suspended ──(a probe succeeds)──▶ active
           ──(a subscription: too many failures in an hour)──▶     ──(its client refreshes it)──▶

A suspended webhook's deliveries are held, up to a limit, and one delivery an hour probes the receiver. The circuit breaker
handles shorter failures. This module updates both, so that they cannot disagree.

A failure of ours (`attempt_category.OWN_FAILURES`) is no failure of the receiver: every look-up fails while our name servers
are down. It sets no `failing_since` and suspends no webhook, so a webhook whose name servers never answer is never suspended.
Its deliveries are given up at their age, which bounds what waits for it. A name that does not exist
(`AttemptCategory.NAME_NOT_FOUND`) is a failure of the receiver.

A subscription is also suspended by the rule of the events specification: more than 95 % of at least 100 attempts failed within
60 minutes (`failure_rate`). The circuit breaker keeps a receiver that only fails below a hundred attempts an hour, so the rule
finds those that fail most of the time; the others are suspended after 96 hours.

The owner is warned on the way (`FAILING_PERCENTS`). As with the suspension, a failed attempt decides, not the clock: a webhook
without traffic has not failed further. The level is a column of the webhook, written with the attempt that reached it, so
each level is raised once for each failing period, whichever nodes send. Levels that pass between two attempts raise one event.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from ringback.domain.attempt_category import OWN_FAILURES, wire_reason
from ringback.domain.circuit_breaker import (
    CLOSED_BREAKER,
    SUSPENDED_BREAKER_POLICY,
    WEBHOOK_BREAKER_POLICY,
    breaker_after_failure,
    half_opened,
)
from ringback.domain.clock import format_iso, seconds
from ringback.domain.delivery import AttemptResult
from ringback.domain.event import Event, EventName
from ringback.domain.failure_rate import NO_FAILURES, exceeds_failure_rate, rate_after_attempt
from ringback.domain.ids import EventId
from ringback.domain.retry import HOUR
from ringback.domain.webhook import Webhook, WebhookState

SUSPEND_AFTER_SECONDS: Final = 96 * HOUR
"""The give-up age of the longest schedule: every delivery that waited when the failures began has been given up by then."""
FAILING_PERCENTS: Final = (50, 70, 90)
"""Parts of `SUSPEND_AFTER_SECONDS` without a success at which `webhook.failing` is raised: after 48 h, 67.2 h and 86.4 h."""
LAST_DELIVERY_RESOLUTION_SECONDS: Final = 1.0
"""`last_delivery_at` is exact to a second. Writing it for every delivery would make each webhook a hot row."""
HELD_DELIVERIES_MAX: Final = 10_000
"""Deliveries held for one webhook. A `gap` envelope reports later ones once the receiver recovers."""

RELEASE_BATCH_SIZE: Final = 500
"""Deliveries released in one unit of work: some 10 ms. The janitor releases the rest."""


def is_healthy(webhook: Webhook) -> bool:
    """Whether the last attempt succeeded. An unhealthy webhook gets one attempt at a time."""
    return webhook.last_delivery_at is not None and webhook.failing_since is None and webhook.breaker == CLOSED_BREAKER


def webhook_after_success(webhook: Webhook, *, now: datetime) -> Webhook:
    """The webhook after a 2xx response; the same value if no write is needed."""
    rate = rate_after_attempt(webhook.failure_rate, failed=False, now=now)
    if (
        is_healthy(webhook)
        and rate == webhook.failure_rate
        and webhook.state is not WebhookState.SUSPENDED
        and _is_recent(webhook.last_delivery_at, now)
    ):
        return webhook
    return replace(
        webhook,
        state=WebhookState.ACTIVE if webhook.state is WebhookState.SUSPENDED else webhook.state,
        last_delivery_at=now,
        last_error=None,
        last_error_detail=None,
        failing_since=None,
        alerted_percent=0,
        breaker=CLOSED_BREAKER,
        failure_rate=NO_FAILURES if webhook.state is WebhookState.SUSPENDED else rate,
    )


def webhook_after_failure(
    webhook: Webhook, result: AttemptResult, *, now: datetime, confirmed_now: datetime, random_fraction: float
) -> Webhook:
    """The webhook after a failed attempt; suspended if the receiver has failed for too long, or a subscription too often.

    How long it has failed is judged by confirmed time (`clock_confirmation`).
    """
    is_receiver_failure = result.category not in OWN_FAILURES
    rate = webhook.failure_rate
    if webhook.is_subscription and is_receiver_failure:
        rate = rate_after_attempt(rate, failed=True, now=now)
    failing_since = webhook.failing_since or (now if is_receiver_failure else None)
    is_past_suspension_age = failing_since is not None and confirmed_now - failing_since >= seconds(
        SUSPEND_AFTER_SECONDS
    )
    is_failing_for_good = is_past_suspension_age or exceeds_failure_rate(rate, now=now)
    should_suspend = is_receiver_failure and is_failing_for_good and webhook.state is WebhookState.ACTIVE
    state = WebhookState.SUSPENDED if should_suspend else webhook.state
    policy = SUSPENDED_BREAKER_POLICY if state is WebhookState.SUSPENDED else WEBHOOK_BREAKER_POLICY
    return replace(
        webhook,
        state=state,
        last_error=str(result.category),
        last_error_detail=result.error_detail,
        failing_since=failing_since,
        alerted_percent=_alerted_percent(
            webhook, is_warned=is_receiver_failure and not should_suspend, now=confirmed_now
        ),
        breaker=breaker_after_failure(webhook.breaker, policy, now=now, random_fraction=random_fraction),
        failure_rate=NO_FAILURES if should_suspend else rate,
    )


def webhook_after_end(webhook: Webhook, *, now: datetime) -> Webhook:
    """The ended subscription. It matches no event, and exists until its `terminated` envelope was sent or given up.

    A suspended or paused one gets that one attempt all the same: it is the last.
    """
    return replace(webhook, expires_at=now, paused_at=None, breaker=half_opened(webhook.breaker, now=now))


def webhook_after_loss(webhook: Webhook, seq: int) -> Webhook:
    """The webhook after the event at this position was given up."""
    return replace(webhook, missed_from=seq if webhook.missed_from is None else min(webhook.missed_from, seq))


def health_event_name(previous: Webhook, updated: Webhook) -> EventName | None:
    """The event for the owner if the webhook was suspended, has recovered, or has come closer to its suspension."""
    match previous.state, updated.state:
        case WebhookState.ACTIVE, WebhookState.ACTIVE if updated.alerted_percent > previous.alerted_percent:
            return EventName.WEBHOOK_FAILING
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
        data=_webhook_event_data(webhook, name),
        created_at=now,
    )


def _webhook_event_data(webhook: Webhook, name: EventName) -> Mapping[str, Any]:
    """The data has the id and not the URL, which may contain a secret of the owner, and the reason of the specification."""
    data: dict[str, Any] = {
        "webhook_id": webhook.id,
        "state": str(webhook.state),
        "last_error": None if webhook.last_error is None else wire_reason(webhook.last_error),
        "failing_since": None if webhook.failing_since is None else format_iso(webhook.failing_since),
    }
    if name is EventName.WEBHOOK_FAILING and webhook.failing_since is not None:
        data["percent"] = webhook.alerted_percent
        data["suspends_at"] = format_iso(webhook.failing_since + seconds(SUSPEND_AFTER_SECONDS))
        data["advice"] = webhook.last_error_advice
    return data


def _alerted_percent(webhook: Webhook, *, is_warned: bool, now: datetime) -> int:
    """The highest level raised in this failing period, this failure included. A webhook that fails first is at 0."""
    if webhook.failing_since is None:
        return 0
    if not is_warned or webhook.state is not WebhookState.ACTIVE:
        return webhook.alerted_percent
    failing = now - webhook.failing_since
    reached = [each for each in FAILING_PERCENTS if failing * 100 >= seconds(SUSPEND_AFTER_SECONDS) * each]
    return max([webhook.alerted_percent, *reached])


def _is_recent(instant: datetime | None, now: datetime) -> bool:
    return instant is not None and now - instant < seconds(LAST_DELIVERY_RESOLUTION_SECONDS)
