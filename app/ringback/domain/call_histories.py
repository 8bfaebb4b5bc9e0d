"""The history of a call: what happened to it, who was called back, and when its client returned."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from ringback.domain.call import Call
from ringback.domain.call_resumes import CallResume
from ringback.domain.delivery import Attempt, Delivery
from ringback.domain.event import Event
from ringback.domain.ids import CallId, DeliveryId, EventId
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook

HISTORY_EVENTS_MAX: Final = 200
HISTORY_DELIVERIES_MAX: Final = 50
HISTORY_ATTEMPTS_MAX: Final = 20
"""Of each delivery. The longest schedule has fewer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryHistory:
    delivery: Delivery
    """Without its body."""
    webhook: Webhook | None
    """None if it has been removed."""
    message_id: str
    """The `webhook-id` header of every attempt."""
    attempts: Sequence[Attempt]
    """The latest ones, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallHistory:
    call: Call
    events: Sequence[Event]
    """The latest ones, oldest first. Retention can have removed some."""
    deliveries: Sequence[DeliveryHistory]
    """The latest ones, oldest first."""
    resumes: Sequence[CallResume]
    """Oldest first."""
    awaiting_webhooks: Sequence[Webhook] = ()
    """Of an open call: those that receive a callback when it ends, if nothing changes until then."""
    is_truncated: bool = False
    """Whether the call has more events or deliveries than these."""

    @property
    def resume_count(self) -> int:
        return sum(resume.resumes for resume in self.resumes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallMarks:
    """What a chart of many calls shows of one call."""

    call: Call
    deliveries: Sequence[Delivery]
    """The latest ones, by webhook and then oldest first, so that calls compare; without their bodies."""
    resumes: Sequence[CallResume]


class CallHistoryRows(Protocol):
    async def list_events(self, call_id: CallId, *, limit: int) -> Sequence[Event]:
        """The latest events of the call, oldest first."""
        ...

    async def list_deliveries(self, call_ids: Collection[CallId], *, limit: int) -> Mapping[CallId, Sequence[Delivery]]:
        """The latest deliveries of each call, at most `limit` of each, oldest first. Their bodies are not read."""
        ...

    async def list_of_event(self, principal: Principal | None, event_id: EventId, *, limit: int) -> Sequence[Delivery]:
        """Deliveries of one event of the principal; None: of any. Their bodies are not read."""
        ...

    async def list_attempts(
        self, delivery_ids: Collection[DeliveryId], *, limit: int
    ) -> Mapping[DeliveryId, Sequence[Attempt]]:
        """The latest attempts of each delivery, at most `limit` of each, oldest first."""
        ...
