"""The observations of one run, by the agent, the upstreams, the receiver, and the service's event log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

FINAL = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class ObservedStatus:
    """A call as one response showed it."""

    status: str
    outcome: str | None
    runs: int

    @property
    def final(self) -> bool:
        return self.status in FINAL


@dataclass(slots=True, kw_only=True)
class ObservedCall:
    """The agent's observations of one idempotency key."""

    key: str
    kind: str
    unsafe: bool
    ids: list[str] = field(default_factory=list[str])
    """The call id in every acknowledgement."""
    webhooks: set[str] = field(default_factory=set[str])
    """The webhooks that the acknowledgement names."""
    statuses: list[ObservedStatus] = field(default_factory=list[ObservedStatus])
    """In the order of the responses. One reader polls, so this is the order in time."""

    @property
    def last(self) -> ObservedStatus | None:
        return self.statuses[-1] if self.statuses else None


@dataclass(frozen=True, slots=True)
class ToolStart:
    """A request to run a tool, recorded by its upstream. Round 1, after an elicitation, is not a second start."""

    key: str
    round: int


@dataclass(frozen=True, slots=True)
class ReceivedCallback:
    """A callback, recorded by the receiver."""

    message_id: str
    webhook: str
    body: Mapping[str, Any]
    signed_seconds_ago: float = 0.0
    """From the time of its signature to its arrival, by the receiver's clock."""

    @property
    def is_end_event(self) -> str | None:
        """The id of the ended call."""
        return self.body["data"]["call_id"] if self.body["name"] == "call.finished" else None


@dataclass(slots=True, kw_only=True)
class Observations:
    calls: Sequence[ObservedCall] = ()
    starts: Sequence[ToolStart] = ()
    callbacks: Sequence[ReceivedCallback] = ()
    logged_events: Sequence[str] = ()
    """The call id of each `call.finished` in the event log."""
    unexpected_responses: list[str] = field(default_factory=list[str])
    """Unexpected error responses."""

    @property
    def acknowledged(self) -> list[ObservedCall]:
        return [call for call in self.calls if call.ids]
