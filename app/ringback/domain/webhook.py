"""A webhook: a URL, the events that match it, and how they are delivered.

`matches_event` is the whole matching rule. It runs inside the transaction that writes the event, and a registration locks the
same log, so a call that ends at that moment is either before the registration (and in the log) or after it (and matched).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from ringback.domain.attempt_category import category_advice
from ringback.domain.call import Call
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.callback_headers import CallbackHeaders
from ringback.domain.circuit_breaker import CLOSED_BREAKER, CircuitBreaker
from ringback.domain.clock import seconds
from ringback.domain.event import Event, EventName
from ringback.domain.failure_rate import NO_FAILURES, FailureRate
from ringback.domain.ids import CallId, WebhookId
from ringback.domain.principal import Principal
from ringback.domain.record_inits import quick_init
from ringback.domain.retry import RETRY_SCHEDULES, RetryProfile, RetrySchedule, own_retry_schedule


class WebhookState(StrEnum):
    ACTIVE = "active"
    PENDING_VERIFICATION = "pending_verification"
    """Registered, URL not verified: new deliveries are held."""
    SUSPENDED = "suspended"
    """Failing for days: new deliveries are held until a probe succeeds."""
    DISABLED = "disabled"
    """Switched off by its owner: no event matches, and open deliveries are held until it is active again."""


FAILING_STATES: Final = tuple(state for state in WebhookState if state is not WebhookState.DISABLED)
"""The states in which a webhook with a `last_error` counts as failing."""


class WebhookHealth(StrEnum):
    """A filter of lists of webhooks."""

    FAILING = "failing"
    """The last attempt or challenge failed, and the webhook is not disabled."""


class DeliveryCondition(StrEnum):
    """Whether the end of a call is delivered although its client got the result inline."""

    ALWAYS = "always"
    DETACHED = "detached"
    """Not if the response to the request that started the call contained the result."""


class WebhookOrigin(StrEnum):
    """The interface through which the webhook was registered."""

    REST = "rest"
    MCP = "mcp"
    CALL = "call"
    """Registered with one call; it expires with that call. Without a call_id: shared by calls of one session that gave the
    same callback; it expires after the last of them."""


class MessageIds(StrEnum):
    """What the `webhook-id` of an event is."""

    EVENT = "event"
    """The eventId, which is the same in every delivery mode. All clients that exist accept it, and some demand it."""
    MESSAGE = "message"
    """An id of this event for this subscription, as a later text of SEP-3415 is reported to demand."""


WEBHOOK_ID_PREFIX: Final = "wh_"
SUBSCRIPTION_ID_PREFIX: Final = "sub_"
"""Ids of webhooks that MCP clients registered with events/subscribe."""
DESCRIPTION_LENGTH_MAX: Final = 500
"""Characters in a webhook's description: a few sentences."""
SECRET_LENGTH_MAX: Final = 256
"""More than the 94 characters of the longest valid secret: `signing.secrets` refuses longer ones with a reason."""
DEFAULT_EVENTS: Final[frozenset[str]] = frozenset({EventName.CALL_FINISHED, EventName.CALL_INPUT_REQUIRED})
HOLDING_STATES: Final = frozenset({WebhookState.PENDING_VERIFICATION, WebhookState.SUSPENDED})

OWNER_STATE_TRANSITIONS: Final[dict[WebhookState, frozenset[WebhookState]]] = {
    WebhookState.ACTIVE: frozenset({WebhookState.ACTIVE, WebhookState.DISABLED}),
    WebhookState.DISABLED: frozenset({WebhookState.ACTIVE, WebhookState.DISABLED}),
    WebhookState.SUSPENDED: frozenset({WebhookState.ACTIVE, WebhookState.DISABLED}),
    WebhookState.PENDING_VERIFICATION: frozenset(),
}
"""States that an owner may set. No sequence of changes leads from `pending_verification` to `active`."""

TEST_EVENT_NAME: Final = "webhook.test"
"""The name of a test. It is not an `EventName`, because a test is in no log and no webhook can subscribe to it."""

SECRETS_UNREADABLE: Final = "secrets_unreadable"
"""The `last_error` of a webhook whose callbacks cannot be signed. Rotating its secret repairs it."""

INLINE_GRACE_SECONDS: Final = 15.0
"""How long a delivery to a `detached` webhook waits for the inline response to be written. The waiting request wakes within a
second; the rest is for a client that reads slowly."""

SUBSCRIBE_GRACE_SECONDS: Final = 1.0
"""How long the deliveries to a new event subscription wait, so that its client has the subscription's id first. A response is
written within milliseconds; if a client takes longer to store it, it refuses the delivery and gets the first retry."""

PREVIOUS_SECRETS_MAX: Final = 10
"""Rotated secrets that still sign. Each adds a signature to every attempt, and the header has a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSecret:
    """A `whsec_…` signing secret. `ends_at` is set once rotation has replaced it."""

    value: str = field(repr=False)
    ends_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSpec:
    """What a client chooses for a webhook: where callbacks go, which events match, and how deliveries are made.

    A registration and a stored webhook both extend it, so that the members are written once.
    """

    url: str
    events: frozenset[str] = DEFAULT_EVENTS
    """Names of `EventName` and of external event types (`domain.event_types`)."""
    outcomes: frozenset[CallOutcome] | None = None
    """`call.finished` is received for calls with these outcomes; None means all. Other events have no outcome."""
    upstream: str | None = None
    resource_uri: str | None = None
    """With `upstream.changed`: matches changes of this resource instead of changes of the upstream's lists."""
    tool: str | None = None
    call_id: CallId | None = None
    client_session_id: str | None = None
    correlation_id: str | None = None
    match_correlation: bool = False
    retries: RetryProfile = RetryProfile.DAYS
    retry_steps: tuple[int, ...] | None = None
    """The owner's own schedule: the pause in seconds before each further attempt. None selects the schedule of `retries`."""
    include_result: bool = False
    when: DeliveryCondition = DeliveryCondition.ALWAYS
    ordered: bool = False
    """One delivery at a time for each client_session_id, or for each call without one, in the order of the log. Events without
    both have no order."""
    rate_per_second: float | None = None
    """The largest number of attempts per second; None sets no limit."""
    description: str | None = None

    def settings(self) -> dict[str, Any]:
        """The values of these members, also of an object that has more."""
        return {name: getattr(self, name) for name in _SETTINGS}

    @property
    def retry_schedule(self) -> RetrySchedule:
        return RETRY_SCHEDULES[self.retries] if self.retry_steps is None else own_retry_schedule(self.retry_steps)


_SETTINGS: Final = tuple(each.name for each in fields(WebhookSpec))


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook(WebhookSpec):
    id: WebhookId
    principal: Principal
    name: str | None = None
    """Its owner's name for it, unique among the webhooks of the principal."""
    idempotency_key: str | None = None
    request_hash: str | None = None
    """A hash of the registration. The idempotency key may repeat only with the same hash. A callback of one call has it if its
    secret was generated."""
    secrets: tuple[WebhookSecret, ...] = field(repr=False)
    """Newest first; sealed at rest. Empty when the key that sealed them is missing."""
    headers: CallbackHeaders = field(default=(), repr=False)
    """Added to every callback; sealed together with the secrets."""
    state: WebhookState = WebhookState.ACTIVE
    paused_at: datetime | None = None
    """When its owner paused the webhook; None if it is not paused. Its deliveries are held then, whatever its state."""
    origin: WebhookOrigin = WebhookOrigin.REST
    message_ids: MessageIds = MessageIds.EVENT
    topic: str | None = None
    """The arguments with which a subscription asks for an upstream's event (`event_types.arguments_topic`). It matches only
    events of this topic; None matches only events without one."""
    shown_event_name: str | None = None
    """The name of the event in callbacks: a client of `/mcp/{upstream}` subscribes to the upstream's own name. None is the
    name in the log."""
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    last_delivery_at: datetime | None = None
    last_error: str | None = None
    """A fixed category, never a receiver's words."""
    last_error_detail: str | None = None
    """The status code and the fact beside the category, for the owner (`AttemptResult.error_detail`)."""
    failing_since: datetime | None = None
    alerted_percent: int = 0
    """The highest level of `webhook.failing` raised since `failing_since` (`webhook_health.FAILING_PERCENTS`); 0 if none."""
    breaker: CircuitBreaker = CLOSED_BREAKER
    failure_rate: FailureRate = NO_FAILURES
    """Counted for subscriptions only."""
    missed_from: int | None = None
    """The place of the first event that was given up and that no gap envelope has reported yet."""

    @property
    def is_subscription(self) -> bool:
        """Whether an MCP client subscribed it (events/subscribe). Its URL, secret and filters are that client's to change."""
        return self.id.startswith(SUBSCRIPTION_ID_PREFIX)

    @property
    def header_names(self) -> Sequence[str]:
        return [name for name, _ in self.headers]

    @property
    def last_error_advice(self) -> str | None:
        """What to do next about the last error."""
        if self.last_error == SECRETS_UNREADABLE:
            return "Rotate the signing secret, or have the operator restore the missing key of RINGBACK_SECRET_KEYS."
        return None if self.last_error is None else category_advice(self.last_error)

    @property
    def has_unreadable_secrets(self) -> bool:
        """Whether callbacks cannot be signed, because the key that sealed the secrets is missing from the key ring."""
        return not self.secrets

    def holds_deliveries(self) -> bool:
        """Whether new deliveries are held until the webhook becomes active, or its owner resumes it."""
        return self.paused_at is not None or self.state in HOLDING_STATES


def matches_event(webhook: Webhook, event: Event, *, now: datetime) -> bool:
    """Whether this event is delivered to this webhook."""
    return (
        webhook.principal == event.principal
        and webhook.state is not WebhookState.DISABLED
        and not _is_expired(webhook, now)
        and not _is_about(event, webhook)  # an unreachable webhook cannot receive events about itself
        and event.name in webhook.events
        and _matches_outcome(webhook, event)
        and _matches_filter(webhook.upstream, event.upstream)
        and _matches_filter(webhook.tool, event.tool)
        and _matches_filter(webhook.call_id, event.call_id)
        and _matches_filter(webhook.client_session_id, event.client_session_id)
        and (not webhook.match_correlation or _matches_filter(webhook.correlation_id, event.correlation_id))
        and (event.name != EventName.UPSTREAM_CHANGED or webhook.resource_uri == event.data.get("uri"))
        and webhook.topic == event.topic
    )


def webhook_for_call(webhook: Webhook, call_id: CallId) -> Webhook:
    """The webhook as it applies to a call that names it: its events count, its filters do not.

    Only for matching and delivering: its settings are never stored.
    """
    return replace(webhook, call_id=call_id, upstream=None, tool=None, client_session_id=None, match_correlation=False)


def delivery_due_at(webhook: Webhook, event: Event, call: Call | None, *, now: datetime) -> datetime:
    """When the event's delivery is due: now, or after `INLINE_GRACE_SECONDS` if the client may get the result inline.

    The delivery is cancelled once the inline response is written, and sent otherwise. Only the end of a call can be returned
    inline, so input requests and progress are due at once. An event subscription gets nothing in its first
    `SUBSCRIBE_GRACE_SECONDS`. A clock that was far ahead may have dated the subscription or the log: nothing waits longer.
    """
    if webhook.is_subscription:
        return max(now, min(now, webhook.created_at) + seconds(SUBSCRIBE_GRACE_SECONDS))
    if webhook.when is DeliveryCondition.ALWAYS or event.name != EventName.CALL_FINISHED:
        return now
    if call is None or not call.answered_inline:
        return now
    return max(now, min(now, event.created_at) + seconds(INLINE_GRACE_SECONDS))


def signing_secrets(webhook: Webhook, *, now: datetime) -> tuple[str, ...]:
    """The secrets that sign an attempt now: the current secret and rotated ones before their end."""
    return tuple(secret.value for secret in webhook.secrets if secret.ends_at is None or secret.ends_at > now)


def with_rotated_secret(webhook: Webhook, secret: str, *, now: datetime, overlap_seconds: float) -> Webhook:
    """The webhook with a new secret. Earlier secrets also sign until the overlap ends, or until their own earlier end.

    With an overlap of 0 only the new secret signs, as a leaked secret requires.
    """
    ends_at = now + seconds(overlap_seconds)
    previous_secrets = tuple(
        WebhookSecret(value=each.value, ends_at=end)
        for each in webhook.secrets
        if each.value != secret and (end := min(each.ends_at or ends_at, ends_at)) > now
    )
    return replace(webhook, secrets=(WebhookSecret(value=secret), *previous_secrets), updated_at=now)


def with_state(webhook: Webhook, state: WebhookState) -> Webhook:
    """The webhook in a state of `OWNER_STATE_TRANSITIONS`. Becoming active resets its failures."""
    if state is WebhookState.ACTIVE and webhook.state is not WebhookState.ACTIVE:
        return replace(
            webhook,
            state=state,
            failing_since=None,
            alerted_percent=0,
            last_error=None,
            last_error_detail=None,
            breaker=CLOSED_BREAKER,
            failure_rate=NO_FAILURES,
        )
    return replace(webhook, state=state)


def with_pause(webhook: Webhook, *, paused: bool, now: datetime) -> Webhook:
    """The webhook paused or resumed. A repeated pause keeps the time of the first one."""
    if paused is (webhook.paused_at is not None):
        return webhook
    return replace(webhook, paused_at=now if paused else None)


def with_url(webhook: Webhook, url: str) -> Webhook:
    """The webhook with another URL. A new URL resets the health of the webhook."""
    if url == webhook.url:
        return webhook
    return replace(
        webhook,
        url=url,
        last_error=None,
        last_error_detail=None,
        failing_since=None,
        alerted_percent=0,
        last_delivery_at=None,
        breaker=CLOSED_BREAKER,
        failure_rate=NO_FAILURES,
    )


def with_unreadable_secrets(webhook: Webhook) -> Webhook:
    """A webhook whose secrets cannot be unsealed. It is suspended until it gets a new secret or the key returns."""
    if webhook.state is WebhookState.DISABLED:
        return replace(webhook, secrets=())
    return replace(
        webhook, secrets=(), state=WebhookState.SUSPENDED, last_error=SECRETS_UNREADABLE, last_error_detail=None
    )


def _is_about(event: Event, webhook: Webhook) -> bool:
    """The data of an external event is its source's: a member of this name may mean anything."""
    return not event.is_external and event.data.get("webhook_id") == webhook.id


def _is_expired(webhook: Webhook, now: datetime) -> bool:
    return webhook.expires_at is not None and webhook.expires_at <= now


def _matches_outcome(webhook: Webhook, event: Event) -> bool:
    """The end of a call that has not ended yet has no outcome, and matches: the call may end with any of them."""
    if webhook.outcomes is None or event.name != EventName.CALL_FINISHED:
        return True
    outcome = event.data.get("outcome")
    return outcome is None or outcome in webhook.outcomes


def _matches_filter(expected: str | None, actual: str | None) -> bool:
    return expected is None or expected == actual
