"""Deliveries: one event for one webhook, and what becomes of it.

    held ◀─▶ pending ──▶ leased ──▶ delivered
      │         ▲           │
      │         └───────────┤ (try again later)
      └────▶ dead ◀─────────┤ (final answer, ladder ended, too old)
             cancelled ◀────┘ (its webhook went away)

The body is made once, stored, and sent byte for byte in every attempt; only the timestamp and the signature are new.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from ringback.domain.clock import seconds
from ringback.domain.ids import AttemptId, CallId, DeliveryId, EventId, WebhookId
from ringback.domain.principal import Principal
from ringback.domain.retry import (
    ORDERED_GIVE_UP_SECONDS,
    PROGRESS_SCHEDULE,
    RETRY_SCHEDULES,
    RetryProfile,
    RetrySchedule,
    retry_delay_seconds,
)


class DeliveryState(StrEnum):
    HELD = "held"
    PENDING = "pending"
    LEASED = "leased"
    DELIVERED = "delivered"
    DEAD = "dead"
    CANCELLED = "cancelled"


DELIVERY_TRANSITIONS: Final[dict[DeliveryState, frozenset[DeliveryState]]] = {
    DeliveryState.HELD: frozenset({DeliveryState.PENDING, DeliveryState.DEAD, DeliveryState.CANCELLED}),
    DeliveryState.PENDING: frozenset(
        {DeliveryState.HELD, DeliveryState.LEASED, DeliveryState.DEAD, DeliveryState.CANCELLED}
    ),
    DeliveryState.LEASED: frozenset(
        {DeliveryState.DELIVERED, DeliveryState.PENDING, DeliveryState.DEAD, DeliveryState.CANCELLED}
    ),
    DeliveryState.DELIVERED: frozenset(),
    DeliveryState.DEAD: frozenset(),
    DeliveryState.CANCELLED: frozenset(),
}

OPEN_STATES: Final = frozenset({DeliveryState.HELD, DeliveryState.PENDING, DeliveryState.LEASED})
"""Neither delivered nor abandoned: what holds a webhook's watermark back."""


class DeliveryKind(StrEnum):
    """What a delivery is, which decides how long it is tried and what its loss means."""

    EVENT = "event"
    PROGRESS = "progress"
    """Of an event that the next one makes worthless: tried twice, and dropped when a newer one or the end is there."""
    GAP = "gap"
    """A control envelope: it tells a receiver that is back where to poll from for what was given up meanwhile."""


class AttemptCategory(StrEnum):
    """How an attempt ended. Receivers' own words never leave the attempt log; these do."""

    DELIVERED = "delivered"
    LOOK_UP_FAILED = "look_up_failed"
    """Nobody told us the host's addresses: a time-out, SERVFAIL, name servers that are down, or a limit of ours. It says
    nothing about the receiver, so it counts against no origin and suspends no webhook (`domain.health`)."""
    NAME_NOT_FOUND = "name_not_found"
    """The name servers say that the host does not exist, or has no address. That is the receiver's own affair."""
    CONNECTION_REFUSED = "connection_refused"
    TIMEOUT = "timeout"
    TLS_ERROR = "tls_error"
    HTTP_3XX = "http_3xx"
    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    CHALLENGE_FAILED = "challenge_failed"
    """The receiver did not prove that it wants callbacks: nothing but a challenge ends so."""
    UNREADABLE = "unreadable"
    """It was never sent: the key that sealed what was to be sent is not in the key ring any more."""


PERMANENT_FAILURE_STATUS_CODES: Final = frozenset({410, 413})
"""Gone, and too large: another attempt of the same body cannot end otherwise (mcp-events §8)."""
RETRY_AFTER_STATUS_CODES: Final = frozenset({429, 503})


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    id: DeliveryId
    principal: Principal
    webhook_id: WebhookId
    event_id: EventId | None
    """None for a control envelope."""
    kind: DeliveryKind = DeliveryKind.EVENT
    call_id: CallId | None
    """None for a test, which is about no call."""
    seq: int | None
    """The event's place in the log, which the webhook's watermark is made of; None for what is in no log: a test."""
    generation: int = 1
    """Raised by a replay: the stored body again, under the same webhook-id."""
    body: bytes = field(repr=False)
    """Empty when it cannot be unsealed any more."""
    state: DeliveryState
    attempts: int = 0
    due_at: datetime
    give_up_at: datetime
    order_key: str | None = None
    """Set when the webhook wants order: of those with the same key one is open at a time, in the order of the log."""
    lease_owner: str | None = None
    lease_token: str | None = None
    lease_until: datetime | None = None
    last_category: AttemptCategory | None = None
    created_at: datetime
    finished_at: datetime | None = None

    @property
    def is_unreadable(self) -> bool:
        return not self.body

    @property
    def message_id(self) -> str:
        """The `webhook-id` of every attempt: the body's eventId, or `msg_<type>_<random>` for an envelope (mcp-events §8)."""
        return self.event_id or f"msg_{self.kind}_{self.id.partition('_')[2]}"


def next_generation(
    delivery: Delivery, *, delivery_id: DeliveryId, is_held: bool, profile: RetryProfile, now: datetime
) -> Delivery:
    """The next generation of a delivery that has ended: the same body and webhook-id, with every attempt before it."""
    return replace(
        delivery,
        id=delivery_id,
        generation=delivery.generation + 1,
        state=DeliveryState.HELD if is_held else DeliveryState.PENDING,
        attempts=0,
        due_at=now,
        give_up_at=now + seconds(give_up_seconds(delivery.kind, profile, ordered=delivery.order_key is not None)),
        last_category=None,
        created_at=now,
        finished_at=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    id: AttemptId
    delivery_id: DeliveryId
    number: int
    started_at: datetime
    duration_ms: int
    category: AttemptCategory
    status_code: int | None
    excerpt: str | None = field(default=None, repr=False)
    """The first bytes of the receiver's answer, for its owner's eyes only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """What came of one POST: the receiver's status, or the category of the failure to get one."""

    category: AttemptCategory
    status_code: int | None = None
    retry_after_seconds: float | None = None
    excerpt: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecision:
    """What an answer means for its delivery."""

    state: DeliveryState
    due_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryUpdate:
    """What changes about a delivery when its lease ends."""

    delivery: Delivery
    """As it was leased: its token is asked for once more."""
    state: DeliveryState
    due_at: datetime
    category: AttemptCategory | None
    finished_at: datetime | None


def category_for_status_code(status_code: int) -> AttemptCategory:
    match status_code // 100:
        case 2:
            return AttemptCategory.DELIVERED
        case 3:
            return AttemptCategory.HTTP_3XX
        case 5:
            return AttemptCategory.HTTP_5XX
        case _:
            return AttemptCategory.HTTP_4XX


def retry_schedule_for(kind: DeliveryKind, profile: RetryProfile) -> RetrySchedule:
    match kind:
        case DeliveryKind.EVENT:
            return RETRY_SCHEDULES[profile]
        case DeliveryKind.PROGRESS:
            return PROGRESS_SCHEDULE
        case DeliveryKind.GAP:
            return RETRY_SCHEDULES[RetryProfile.MINUTES]


def give_up_seconds(kind: DeliveryKind, profile: RetryProfile, *, ordered: bool) -> float:
    """Age at which nothing more is tried."""
    age = retry_schedule_for(kind, profile).give_up_seconds
    return min(age, ORDERED_GIVE_UP_SECONDS) if ordered else age


def decide_retry(
    delivery: Delivery, result: AttemptResult, *, profile: RetryProfile, now: datetime, random_fraction: float
) -> RetryDecision:
    """What becomes of a delivery after the attempt that ended in `answer`; `delivery.attempts` already counts it."""
    if result.category is AttemptCategory.DELIVERED:
        return RetryDecision(state=DeliveryState.DELIVERED)
    if result.status_code in PERMANENT_FAILURE_STATUS_CODES:
        return RetryDecision(state=DeliveryState.DEAD)
    retry_after_seconds = result.retry_after_seconds if result.status_code in RETRY_AFTER_STATUS_CODES else None
    schedule = retry_schedule_for(delivery.kind, profile)
    delay = retry_delay_seconds(
        schedule, attempts=delivery.attempts, random_fraction=random_fraction, retry_after_seconds=retry_after_seconds
    )
    if delay is None or now + seconds(delay) > delivery.give_up_at:
        return RetryDecision(state=DeliveryState.DEAD)
    return RetryDecision(state=DeliveryState.PENDING, due_at=now + seconds(delay))


def build_delivery_update(
    delivery: Delivery, decision: RetryDecision, *, category: AttemptCategory | None, now: datetime
) -> DeliveryUpdate:
    """The delivery as its verdict leaves it."""
    return DeliveryUpdate(
        delivery=delivery,
        state=decision.state,
        due_at=decision.due_at or delivery.due_at,
        category=category,
        finished_at=None if decision.state in OPEN_STATES else now,
    )


def leaves_gap(delivery: Delivery, result: AttemptResult | None) -> bool:
    """Whether a delivery that was given up leaves a gap which its receiver has to be told of.

    What the receiver refused for good (`answer`) it knows. Progress is nothing to miss, and what was sent again after it had
    ended has been told of before.
    """
    is_permanent_failure = result is not None and result.status_code in PERMANENT_FAILURE_STATUS_CODES
    return (
        delivery.kind is DeliveryKind.EVENT
        and delivery.seq is not None
        and delivery.generation == 1
        and not is_permanent_failure
    )
