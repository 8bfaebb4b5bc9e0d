"""The facts of a run: what clients received, what upstreams and receivers saw, and what was done to the nodes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from ringback.domain.call import FINAL_CALL_STATUSES


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


@dataclass(slots=True)
class History:
    get_time: Callable[[], float]
    facts: list[Fact] = field(default_factory=list[Fact])
    calls: dict[str, CallObservations] = field(default_factory=dict[str, CallObservations])
    webhooks: dict[str, tuple[str, int]] = field(default_factory=dict[str, tuple[str, int]])
    """The id of each registered webhook, and when that was acknowledged (milliseconds since 1970), by its name in the plan."""
    removed_webhooks: set[str] = field(default_factory=set[str])
    """Webhooks whose removal was requested."""
    starts: list[ToolStart] = field(default_factory=list[ToolStart])
    ends: list[ProducedEnd] = field(default_factory=list[ProducedEnd])
    callbacks: list[ReceivedCallback] = field(default_factory=list[ReceivedCallback])
    broken_leases: list[str] = field(default_factory=list[str])
    """Leases of others that a node has ended, and callbacks that it sent without one."""
    log_reads: dict[str, list[int]] = field(default_factory=dict[str, list[int]])
    """The positions of the events that a reader of each principal's log got, in their order."""
    wide_tokens: list[str] = field(default_factory=list[str])
    """Resume tokens that opened what they must not."""
    crowds: list[str] = field(default_factory=list[str])
    """Calls at an upstream beyond the capacity of their node."""
    surprises: list[str] = field(default_factory=list[str])
    """Responses and errors that no client should get."""
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

    def call(self, key: str) -> CallObservations:
        return self.calls.setdefault(key, CallObservations())
