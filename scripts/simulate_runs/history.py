"""The facts of a run: what clients received, what upstreams and receivers saw, and what was done to the nodes."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ringback.domain.call import FINAL_CALL_STATUSES
from scripts.simulate_runs.plan import ERASURES, ActionKind, PlannedAction, PlannedCall, PlannedReader


class Subject(StrEnum):
    CLIENT = "client"
    UPSTREAM = "upstream"
    RECEIVER = "receiver"
    FAULT = "fault"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class Fact:
    at_seconds: float
    subject: Subject
    text: str

    def __str__(self) -> str:
        return f"{self.at_seconds:9.3f} s  {self.subject:<9} {self.text}"


@dataclass(frozen=True, slots=True)
class Disturbance:
    """A fault of the plan, when it began."""

    at_seconds: float
    may_lose_answers: bool
    """Whether a node may not learn how its call ends: it dies, freezes or stops, its lease ends, or its upstream crashes."""
    upstream: str | None = None
    """Whose fault it is; None: a node's or the database's."""


@dataclass(frozen=True, slots=True)
class ObservedStatus:
    """A call as one response showed it."""

    status: str
    outcome: str | None
    runs: int

    @property
    def is_final(self) -> bool:
        return self.status in FINAL_CALL_STATUSES


@dataclass(slots=True, kw_only=True)
class CallObservations:
    """What the client knows of one call of its plan."""

    call_ids: list[str] = field(default_factory=list[str])
    """The call id of every acknowledgement."""
    acknowledged_at: float | None = None
    """When the first acknowledgement arrived."""
    was_refused: bool = False
    """The start exceeded the quota."""
    webhook_ids: set[str] = field(default_factory=set[str])
    """The webhooks that the first acknowledgement names."""
    tokens: list[str] = field(default_factory=list[str], repr=False)
    statuses: list[ObservedStatus] = field(default_factory=list[ObservedStatus])
    """In the order of the responses. One reader polls, so this is the order in time."""
    requested_cancel: bool = False
    """A cancellation was sent, whether or not its response arrived."""
    reported_end: bool = False
    """A report of the end was sent, whether or not its response arrived."""


@dataclass(frozen=True, slots=True)
class ToolStart:
    """A request to run a tool, as its upstream received it."""

    at_seconds: float
    key: str
    round: int
    node: str


@dataclass(frozen=True, slots=True)
class ProducedEnd:
    """How an upstream ended one start of a tool: the text of its result, or the kind of failure."""

    key: str
    outcome: str
    text: str | None


@dataclass(slots=True, kw_only=True)
class ObservedAction:
    """An action of the plan, from its first request on. Times are seconds."""

    planned: PlannedAction
    requested_at: float
    acknowledged_at: float | None = None
    """When the response arrived."""
    ended_at: float | None = None
    """When the first request was sent that takes the action back."""
    target_id: str | None = None
    """The id of the erasure, or of the webhook."""
    count: int = 0
    """Deliveries sent again, as the response says."""


@dataclass(frozen=True, slots=True)
class ReceivedCallback:
    at_seconds: float
    receiver: str
    webhook_id: str
    message_id: str
    body: dict[str, Any] = field(repr=False)
    was_accepted: bool
    """Whether the receiver answered 2xx. The answer may have been lost."""
    is_verified: bool
    """By the secret that the webhook was registered with."""
    is_verified_anew: bool = False
    """By the secret to which an action of the plan rotates it."""


@dataclass(frozen=True, slots=True)
class AcknowledgedEvent:
    """An event of a publisher whose publication was acknowledged."""

    publisher: str
    principal: str
    event_id: str
    is_repeated: bool
    """It had been acknowledged before."""
    is_new: bool
    """Whether the response says that the log did not have it."""


@dataclass(slots=True, kw_only=True)
class ObservedReads:
    """What one reader of a log has got."""

    seqs: list[int] = field(default_factory=list[int])
    arrivals: list[tuple[int, float, float]] = field(default_factory=list[tuple[int, float, float]])
    """Of events that a stream sent after its first page: the position, and the seconds of the arrival and of the first page."""


@dataclass(slots=True)
class History:
    get_time: Callable[[], float]
    facts: list[Fact] = field(default_factory=list[Fact])
    calls: dict[str, CallObservations] = field(default_factory=dict[str, CallObservations])
    webhooks: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """The id of each registered webhook, and when that was acknowledged (milliseconds since 1970), by its name in the plan."""
    removed_webhooks: set[str] = field(default_factory=set[str])
    """Webhooks whose removal was requested."""
    second_lives: set[str] = field(default_factory=set[str])
    """Subscriptions that lapsed, and began again from a cursor: they may get events twice."""
    revoked_leases: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    """Leases of deliveries that were cancelled or erased, by webhook and event. Their owners may send meanwhile."""
    truncated_subscriptions: set[str] = field(default_factory=set[str])
    """Subscriptions whose client was informed that events are missing."""
    starts: list[ToolStart] = field(default_factory=list[ToolStart])
    ends: list[ProducedEnd] = field(default_factory=list[ProducedEnd])
    callbacks: list[ReceivedCallback] = field(default_factory=list[ReceivedCallback])
    broken_leases: list[str] = field(default_factory=list[str])
    """Leases of others that a node has ended, and callbacks that it sent without one."""
    log_reads: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """The positions of the events that a reader of each principal's log got, in their order."""
    reads: dict[PlannedReader, ObservedReads] = field(default_factory=dict[PlannedReader, ObservedReads])
    published: list[AcknowledgedEvent] = field(default_factory=list[AcknowledgedEvent])
    wrong_keys: list[str] = field(default_factory=list[str])
    """Keys that were refused although they are valid, or accepted although they are not."""
    left_keys: list[str] = field(default_factory=list[str])
    """Stored values that the key before a rotation has sealed, at the end."""
    deaf_times: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """From when until when a node had no listener, in seconds."""
    wide_tokens: list[str] = field(default_factory=list[str])
    """Resume tokens that opened what they must not."""
    crowds: list[str] = field(default_factory=list[str])
    """Calls at an upstream beyond the capacity of their node, and principals that left others no place there."""
    surprises: list[str] = field(default_factory=list[str])
    """Responses and errors that no client should get."""
    actions: list[ObservedAction] = field(default_factory=list[ObservedAction])
    exceeded_quotas: list[str] = field(default_factory=list[str])
    """Calls that were accepted beyond the quota of their principal."""
    crossed_controls: list[str] = field(default_factory=list[str])
    """Calls that began at a paused upstream."""
    disturbances: list[Disturbance] = field(default_factory=list[Disturbance])
    """Faults so far."""

    def note(self, subject: Subject, text: str) -> None:
        self.facts.append(Fact(self.get_time(), subject, text))

    def disturb(self, text: str, *, may_lose_answers: bool = True, upstream: str | None = None) -> None:
        """Note a fault that the plan demands."""
        self.disturbances.append(Disturbance(self.get_time(), may_lose_answers, upstream))
        self.note(Subject.FAULT, text)

    def surprise(self, text: str) -> None:
        self.surprises.append(text)
        self.note(Subject.FAULT, f"SURPRISE: {text}")

    def is_paused(self, upstream: str) -> bool:
        """Whether a pause of this upstream was acknowledged, and its end not requested."""
        return any(
            each.planned.kind is ActionKind.PAUSE
            and each.planned.upstream == upstream
            and each.acknowledged_at is not None
            and each.ended_at is None
            for each in self.actions
        )

    @property
    def has_erasures(self) -> bool:
        return any(each.planned.kind in ERASURES for each in self.actions)

    def is_principal_erased(self, principal: str) -> bool:
        """Whether the erasure of this principal was requested."""
        return any(
            each.planned.kind is ActionKind.ERASE_PRINCIPAL and each.planned.principal == principal
            for each in self.actions
        )

    def may_be_erased(self, call: PlannedCall) -> bool:
        """Whether an erasure was requested that the call belongs to."""
        return any(each.planned.erases(call) for each in self.actions)

    def call(self, key: str) -> CallObservations:
        return self.calls.setdefault(key, CallObservations())
