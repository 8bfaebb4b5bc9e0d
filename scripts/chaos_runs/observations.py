"""What everybody saw of one run: the agent, the upstreams, the receiver, and the service's own log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FINAL = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class ObservedStatus:
    """A call at one look."""

    status: str
    outcome: str | None
    runs: int

    @property
    def final(self) -> bool:
        return self.status in FINAL


@dataclass(slots=True, kw_only=True)
class ObservedCall:
    """A call by its idempotency key, as the agent knows it."""

    key: str
    kind: str
    unsafe: bool
    ids: list[str] = field(default_factory=list[str])
    """Of every acknowledgement."""
    webhooks: set[str] = field(default_factory=set[str])
    """Who will be rung, by the acknowledgement."""
    statuses: list[ObservedStatus] = field(default_factory=list[ObservedStatus])
    """In the order in which the answers came; one reader, so that order is time."""

    @property
    def last(self) -> ObservedStatus | None:
        return self.statuses[-1] if self.statuses else None


@dataclass(frozen=True, slots=True)
class ToolStart:
    """A request to run a tool, as its upstream saw it. Round 1 of a call that was asked something is no second start."""

    key: str
    round: int


@dataclass(frozen=True, slots=True)
class ReceivedCallback:
    """A callback, as the receiver kept it."""

    message_id: str
    webhook: str
    body: Mapping[str, Any]

    @property
    def is_end_event(self) -> str | None:
        """The call whose end this is."""
        return self.body["data"]["call_id"] if self.body["name"] == "call.finished" else None


@dataclass(slots=True, kw_only=True)
class Observations:
    calls: Sequence[ObservedCall] = ()
    starts: Sequence[ToolStart] = ()
    callbacks: Sequence[ReceivedCallback] = ()
    logged_events: Sequence[str] = ()
    """The call of each `call.finished` in the event log."""
    unexpected_responses: list[str] = field(default_factory=list[str])
    """Answers that nobody should get."""

    @property
    def acknowledged(self) -> list[ObservedCall]:
        return [call for call in self.calls if call.ids]
