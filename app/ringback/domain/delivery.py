"""A delivery: one event for one webhook, and its states.

    held ◀─▶ pending ──▶ leased ──▶ delivered
      │         ▲           │
      │         └───────────┤ (try again later)
      └────▶ dead ◀─────────┤ (permanent failure, schedule ended, too old)
             cancelled ◀────┘ (its webhook was removed)

The body is built once and stored. Every attempt sends the same bytes with a new timestamp and signature. A subscription that
begins again at an older cursor has new deliveries: the same webhook-ids with other cursors, and erased events as their stubs.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from ringback.domain.attempt_category import AttemptCategory, category_advice
from ringback.domain.clock import seconds
from ringback.domain.ids import AttemptId, CallId, DeliveryId, EventId, WebhookId
from ringback.domain.principal import Principal
from ringback.domain.record_inits import quick_init
from ringback.domain.retry import (
    BREAKER_PAUSE_SECONDS_MAX,
    DAY,
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
"""Neither delivered nor given up. Deliveries in these states hold the webhook's watermark back."""


class DeliveryKind(StrEnum):
    """The kind decides how long a delivery is tried and whether its loss leaves a gap."""

    EVENT = "event"
    PROGRESS = "progress"
    """Progress: tried twice, and cancelled when newer progress or the end of the call exists."""
    GAP = "gap"
    """A control envelope: it gives a recovered receiver the cursor from which to poll the events that were given up."""
    TERMINATED = "terminated"
    """A control envelope: the subscription has ended. It is the last delivery to its webhook."""


CONTROL_ENVELOPES: Final = frozenset({DeliveryKind.GAP, DeliveryKind.TERMINATED})
"""Best effort: clients need not know them, so their failure counts neither against the receiver nor against its origin."""


PERMANENT_FAILURE_STATUS_CODES: Final = frozenset({410, 413})
"""Gone, and content too large: the same body would fail again (mcp-events §8)."""
RETRY_AFTER_STATUS_CODES: Final = frozenset({429, 503})
SUSPENDED_HOLD_SECONDS_MAX: Final = 3.0 * DAY
"""With the retry window of a subscription (an hour) it stays below the four days of the schedule `days`, and so below the
retention of results: the resume token of a delivery that waited works."""
DETAIL_LENGTH_MAX: Final = 300
"""Characters of an attempt's detail: an ordinary URL and a sentence."""


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    id: DeliveryId
    principal: Principal
    webhook_id: WebhookId
    event_id: EventId | None
    """None for a control envelope."""
    kind: DeliveryKind = DeliveryKind.EVENT
    call_id: CallId | None
    """None for a test, which belongs to no call."""
    seq: int | None
    """The event's position in the log, from which the webhook's watermark is computed; None for a test, which is in no log."""
    generation: int = 1
    """A replay raises it and sends the stored body again, with the same webhook-id."""
    body: bytes = field(default=b"", repr=False, compare=False)
    """Empty if it cannot be unsealed, and if the delivery was read without it, which is the same delivery. It may have
    256 KiB."""
    state: DeliveryState
    attempts: int = 0
    due_at: datetime
    """Of a held delivery: the time from which its retry window counts. It lies ahead while a subscription is suspended, and
    `give_up_at` is as much later; the release moves both back (`suspended_window`)."""
    give_up_at: datetime
    order_key: str | None = None
    """Set for ordered webhooks: of the deliveries with one key one is sent at a time, in the order of the log."""
    lease_owner: str | None = None
    lease_token: str | None = None
    lease_until: datetime | None = None
    last_category: AttemptCategory | None = None
    created_at: datetime
    finished_at: datetime | None = None
    traceparent: str | None = field(default=None, repr=False)
    """As `Call.traceparent`, of the event's call."""

    @property
    def is_unreadable(self) -> bool:
        return not self.body

    @property
    def message_id(self) -> str:
        """The `webhook-id` of every attempt: the body's eventId, or `msg_<type>_<random>` for an envelope (mcp-events §8)."""
        return self.event_id or f"msg_{self.kind}_{self.id.partition('_')[2]}"


def next_generation(
    delivery: Delivery,
    *,
    delivery_id: DeliveryId,
    is_held: bool,
    schedule: RetrySchedule,
    now: datetime,
    stopped: timedelta = timedelta(0),
) -> Delivery:
    """The next generation of an ended delivery: the same body and webhook-id, with all attempts available again.

    `stopped` is how far the retry window of a held one moves (`suspended_window`).
    """
    return replace(
        delivery,
        id=delivery_id,
        generation=delivery.generation + 1,
        state=DeliveryState.HELD if is_held else DeliveryState.PENDING,
        attempts=0,
        due_at=now + stopped,
        give_up_at=now
        + stopped
        + seconds(give_up_seconds(delivery.kind, schedule, ordered=delivery.order_key is not None)),
        last_category=None,
        created_at=now,
        finished_at=None,
    )


@quick_init
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
    """The first bytes of the receiver's response, shown only to the webhook's owner."""
    detail: str | None = field(default=None, repr=False)
    """As `AttemptResult.detail`."""

    @property
    def advice(self) -> str | None:
        """What to do next; None for a delivered attempt."""
        return category_advice(self.category)


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """The result of one POST: the receiver's status code, or the category of the failure."""

    category: AttemptCategory
    status_code: int | None = None
    retry_after_seconds: float | None = None
    excerpt: str | None = field(default=None, repr=False)
    detail: str | None = field(default=None, repr=False)
    """A fact beside the category: the range of a blocked address, why a certificate is invalid, where a redirect leads. At most
    `DETAIL_LENGTH_MAX` printable characters, for the webhook's owner and the operator."""

    @property
    def error_detail(self) -> str | None:
        """The status code and the detail, as a webhook's `last_error_detail` has them."""
        status = None if self.status_code is None else f"status {self.status_code}"
        return ", ".join(part for part in (status, self.detail) if part is not None) or None


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class RetryDecision:
    """The state of a delivery after an attempt."""

    state: DeliveryState
    due_at: datetime | None = None


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryUpdate:
    """The values that are written when a delivery's lease ends."""

    delivery: Delivery
    """The delivery as leased. The update is written only if its lease token still holds."""
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


def retry_schedule_for(kind: DeliveryKind, schedule: RetrySchedule) -> RetrySchedule:
    """The schedule of a delivery of this kind. `schedule` is its webhook's."""
    match kind:
        case DeliveryKind.EVENT:
            return schedule
        case DeliveryKind.PROGRESS:
            return PROGRESS_SCHEDULE
        case DeliveryKind.GAP | DeliveryKind.TERMINATED:
            return RETRY_SCHEDULES[RetryProfile.MINUTES]


def give_up_seconds(kind: DeliveryKind, schedule: RetrySchedule, *, ordered: bool) -> float:
    """Age in seconds at which a delivery is given up."""
    age = retry_schedule_for(kind, schedule).give_up_seconds
    return min(age, ORDERED_GIVE_UP_SECONDS) if ordered else age


def decide_retry(
    delivery: Delivery,
    result: AttemptResult,
    *,
    schedule: RetrySchedule,
    now: datetime,
    confirmed_now: datetime,
    random_fraction: float,
) -> RetryDecision:
    """The next state of the delivery after an attempt. `delivery.attempts` already counts that attempt.

    The retry window ends by confirmed time (`clock_confirmation`).
    """
    if result.category is AttemptCategory.DELIVERED:
        return RetryDecision(state=DeliveryState.DELIVERED)
    if result.status_code in PERMANENT_FAILURE_STATUS_CODES:
        return RetryDecision(state=DeliveryState.DEAD)
    delay = retry_delay_seconds(
        retry_schedule_for(delivery.kind, schedule),
        attempts=delivery.attempts,
        random_fraction=random_fraction,
        retry_after_seconds=_requested_pause(
            result, seconds_left=(delivery.give_up_at - confirmed_now).total_seconds()
        ),
    )
    if delay is None or confirmed_now + seconds(delay) > delivery.give_up_at:
        return RetryDecision(state=DeliveryState.DEAD)
    return RetryDecision(state=DeliveryState.PENDING, due_at=now + seconds(delay))


def _requested_pause(result: AttemptResult, *, seconds_left: float) -> float | None:
    """The pause that a busy receiver requests, in seconds.

    If it is longer than the retry window, the pause ends before: a receiver that asks for two hours would otherwise lose
    each ordered delivery at its first attempt. What is left then is a breaker's longest pause.
    """
    requested = result.retry_after_seconds if result.status_code in RETRY_AFTER_STATUS_CODES else None
    if requested is None or requested <= seconds_left:
        return requested
    return max(0.0, seconds_left - BREAKER_PAUSE_SECONDS_MAX)


def build_delivery_update(
    delivery: Delivery, decision: RetryDecision, *, category: AttemptCategory | None, now: datetime
) -> DeliveryUpdate:
    return DeliveryUpdate(
        delivery=delivery,
        state=decision.state,
        due_at=decision.due_at or delivery.due_at,
        category=category,
        finished_at=None if decision.state in OPEN_STATES else now,
    )


def leaves_gap(delivery: Delivery) -> bool:
    """Whether a delivery that was given up leaves a gap that a `gap` envelope must report.

    A permanent failure (410, 413) loses the event too: what responded may have been a proxy, or a limit on the size of bodies.
    Lost progress is no gap, and a replayed delivery has been reported before. A gap that was never attempted is reported by
    another one: what it reports is still missing.
    """
    if delivery.seq is None:
        return False
    return delivery.kind is DeliveryKind.GAP or (delivery.kind is DeliveryKind.EVENT and delivery.generation == 1)


def suspended_window(*, created_at: datetime, now: datetime) -> timedelta:
    """How far the retry window of a delivery moves when it is held for a suspended subscription.

    Time for which a subscription is suspended does not count against the retry window (mcp-events §8). The window waits until
    `SUSPENDED_HOLD_SECONDS_MAX` after the delivery was created, and no longer.
    """
    return max(created_at + seconds(SUSPENDED_HOLD_SECONDS_MAX) - now, timedelta(0))
