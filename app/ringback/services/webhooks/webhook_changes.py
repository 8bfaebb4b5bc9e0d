"""What the owner of a webhook changes, and the webhook after the change."""

from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import Enum
from typing import Final

from ringback.domain.call_outcome import CallOutcome
from ringback.domain.callback_headers import CallbackHeaders
from ringback.domain.errors import InvalidRequest, WebhookNotVerified
from ringback.domain.retry import RetryProfile
from ringback.domain.webhook import (
    OWNER_STATE_TRANSITIONS,
    DeliveryCondition,
    Webhook,
    WebhookState,
    with_pause,
    with_state,
    with_url,
)

_CHANGEABLE_OF_SUBSCRIPTION: Final = frozenset({"paused", "state", "description", "rate_per_second"})
SUBSCRIPTION_ADVICE: Final = (
    "Its client changes it with events/subscribe. You may pause, test, replay and remove it (DELETE /v1/webhooks/{id}), and "
    "limit its rate."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """A retry schedule: a named one, or the owner's own steps in seconds."""

    profile: RetryProfile = RetryProfile.DAYS
    steps: tuple[int, ...] | None = None


class RateLimitRemoval(Enum):
    """The change that removes a rate limit."""

    UNLIMITED = "unlimited"


class OutcomeFilterRemoval(Enum):
    """The change that lets a webhook receive the ends of calls with all outcomes."""

    ALL = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookChange:
    """The changeable members of a webhook. None keeps the current value."""

    url: str | None = None
    events: frozenset[str] | None = None
    outcomes: frozenset[CallOutcome] | OutcomeFilterRemoval | None = None
    description: str | None = None
    include_result: bool | None = None
    when: DeliveryCondition | None = None
    retries: Retries | None = None
    rate_per_second: float | RateLimitRemoval | None = None
    headers: CallbackHeaders | None = field(default=None, repr=False)
    state: WebhookState | None = None
    paused: bool | None = None


def describe_change(change: WebhookChange) -> str:
    """The names of the changed members, and the states that need no secrecy."""
    changed = [each.name for each in fields(change) if getattr(change, each.name) is not None]
    values = {"state": change.state, "paused": change.paused}
    return ", ".join(f"{name}={str(values[name]).lower()}" if name in values else name for name in changed)


def apply_change(webhook: Webhook, change: WebhookChange, *, now: datetime) -> Webhook:
    state = change.state or webhook.state
    if state is not webhook.state:
        require_switchable(webhook, state)
    if change.paused is not None:
        webhook = with_pause(webhook, paused=change.paused, now=now)
    if change.retries is not None:
        webhook = replace(webhook, retries=change.retries.profile, retry_steps=change.retries.steps)
    return replace(
        with_url(with_state(webhook, state), change.url or webhook.url),
        events=webhook.events if change.events is None else change.events,
        outcomes=_changed_outcomes(webhook, change),
        description=webhook.description if change.description is None else change.description,
        include_result=webhook.include_result if change.include_result is None else change.include_result,
        when=change.when or webhook.when,
        rate_per_second=_changed_rate(webhook, change),
        headers=webhook.headers if change.headers is None else change.headers,
    )


def require_change_of_subscription(change: WebhookChange) -> None:
    """Raise `InvalidRequest` for what the subscriber decides, and for disabling: its client would not learn of it."""
    changed = {each.name for each in fields(change) if getattr(change, each.name) is not None}
    if owned := sorted(changed - _CHANGEABLE_OF_SUBSCRIPTION):
        raise InvalidRequest(f"{owned[0]}: this webhook is a subscription of an MCP client. {SUBSCRIPTION_ADVICE}")
    if change.state is WebhookState.DISABLED:
        raise InvalidRequest(f"state: a subscription cannot be disabled. {SUBSCRIPTION_ADVICE}")


def _changed_outcomes(webhook: Webhook, change: WebhookChange) -> frozenset[CallOutcome] | None:
    if isinstance(change.outcomes, OutcomeFilterRemoval):
        return None
    return webhook.outcomes if change.outcomes is None else change.outcomes


def _changed_rate(webhook: Webhook, change: WebhookChange) -> float | None:
    if isinstance(change.rate_per_second, RateLimitRemoval):
        return None
    return change.rate_per_second or webhook.rate_per_second


def require_switchable(webhook: Webhook, state: WebhookState) -> None:
    if state not in {WebhookState.ACTIVE, WebhookState.DISABLED}:
        raise InvalidRequest("state may be set to 'active' or 'disabled' only.")
    if state not in OWNER_STATE_TRANSITIONS[webhook.state]:
        raise WebhookNotVerified(
            "The webhook waits for the proof that its URL accepts callbacks. Only the proof makes it active; until then it "
            f"receives nothing. Request the challenge again: POST /v1/webhooks/{webhook.id}/verify. If you no longer want the "
            "webhook, remove it."
        )
