"""Erasures: a call, the calls of a client session, or all data of a principal are removed before their retention ends.

    request ──▶ open ──▶ batches, a transaction each ──▶ finished
                  │ ▲
                  ▼ │      while a call has not ended
                waiting

What is erased: calls with arguments, `_meta`, results, errors and handles; deliveries with their sealed bodies and attempts;
the webhooks that belong to them; for a principal also its logins to upstreams and their tokens. What remains:

- a tombstone for each call, without the hash of its request, so that its idempotency key starts no second call;
- a tombstone for each event subscription: its id and its end;
- for a call and a session, each event as a stub at its place, so that the log has no holes and every cursor stays valid;
- for a principal, the end of its event log (places are never used twice), and the erasure itself.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol

from ringback.domain.event import Event
from ringback.domain.ids import CallId, ErasureId, EventId, WebhookId
from ringback.domain.principal import Principal


class ErasureKind(StrEnum):
    CALL = "call"
    SESSION = "session"
    PRINCIPAL = "principal"


class ErasureState(StrEnum):
    ERASING = "erasing"
    WAITING = "waiting"
    """A call has not ended; its cancellation was requested."""
    FINISHED = "finished"


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    id: ErasureId
    principal: Principal
    """The owner of what is erased."""
    kind: ErasureKind
    target: str
    """The call's id, the client_session_id, or the principal."""
    cancels: bool
    """Whether calls that have not ended are cancelled first."""
    requested_by: Principal
    requested_at: datetime
    """What is newer stays."""
    head: int
    """The last place of the event log at the request."""
    worked_at: datetime
    is_waiting: bool = False
    finished_at: datetime | None = None
    call_id: CallId | None = None
    """The call whose rows are erased now."""
    seq: int = 0
    """How far the events of this call are erased; without a call, how far those of the log or the tombstones are."""
    calls: int = 0
    deliveries: int = 0
    events: int = 0
    webhooks: int = 0

    @property
    def state(self) -> ErasureState:
        if self.finished_at is not None:
            return ErasureState.FINISHED
        return ErasureState.WAITING if self.is_waiting else ErasureState.ERASING

    @property
    def client_session_id(self) -> str | None:
        return self.target if self.kind is ErasureKind.SESSION else None


_KEPT_MEMBERS: Final = frozenset(
    {
        *("call_id", "status", "outcome", "upstream", "tool", "created_at", "finished_at", "error"),
        *("webhook_id", "state", "last_error", "failing_since", "percent", "suspends_at", "advice"),
    }
)
"""Members of an event's data that are the service's own words, ids and times."""
_EMPTY_MEMBERS: Final[dict[str, Any]] = {
    "correlation_id": None,
    "client_session_id": None,
    "result_bytes": None,
    "result_sha256": None,
    "input_keys": [],
}


def erase_event(event: Event) -> Event:
    """The stub of an event: members that came from the client or the upstream are empty, and `erased` is true.

    The whole data of an external event came from there.
    """
    if event.occurred_at is not None:
        return replace(event, client_session_id=None, correlation_id=None, data={"erased": True})
    data = {name: value for name, value in event.data.items() if name in _KEPT_MEMBERS}
    data |= {name: empty for name, empty in _EMPTY_MEMBERS.items() if name in event.data}
    if "progress" in event.data:
        data["progress"] = {**event.data["progress"], "message": None}
    return replace(event, client_session_id=None, correlation_id=None, data={**data, "erased": True})


class ErasureRows(Protocol):
    """The requests."""

    async def insert(self, erasure: Erasure) -> None: ...

    async def get(self, erasure_id: ErasureId) -> Erasure | None:
        """In a write transaction its row is locked until the end of the transaction."""
        ...

    async def find_open(self, principal: Principal, kind: ErasureKind, target: str) -> Erasure | None:
        """The open erasure of this target that was requested last."""
        ...

    async def find_next(self, *, after: str) -> Erasure | None:
        """The erasure that has waited longest for a batch, of the first principal after this one, or else of the first of all.

        None of those that wait for a call. One that another unit has locked is skipped.
        """
        ...

    async def find_waiting(self, *, after: str, worked_before: datetime | None) -> Erasure | None:
        """In the same turns, an erasure that waits for a call and that no unit has looked at since `worked_before`."""
        ...

    async def update(self, erasure: Erasure) -> None: ...

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        """Remove erasures that finished before `cutoff`."""
        ...


class ErasedRows(Protocol):
    """What erasures remove. Each method reads or removes at most `limit` rows, found by an index."""

    async def list_calls(self, erasure: Erasure, *, limit: int, bytes_max: int) -> Sequence[CallId]:
        """The oldest calls of the session or the principal that are not newer than the request.

        As many as have `bytes_max` of arguments and results together, but at least one.
        """
        ...

    async def list_open_calls(self, erasure: Erasure, *, limit: int) -> Sequence[CallId]:
        """Those of them that have not ended."""
        ...

    async def is_any_newer(self, erasure: Erasure) -> bool:
        """Whether the session has a call or a webhook that is newer than the request, or the principal anything.

        The ends of its calls are no news: the erasure itself cancels them.
        """
        ...

    async def newest_row_at(self, erasure: Erasure) -> datetime | None:
        """When the newest call, webhook or token of the session or the principal was written; None without one."""
        ...

    async def list_webhooks(self, erasure: Erasure, *, limit: int) -> Sequence[WebhookId]:
        """The webhooks of the session or the principal that are not newer than the request."""
        ...

    async def list_call_webhooks(
        self, principal: Principal, call_ids: Sequence[CallId], *, limit: int
    ) -> Sequence[WebhookId]:
        """The webhooks that belong to these calls."""
        ...

    async def list_events(
        self, principal: Principal, call_ids: Sequence[CallId], *, seq: int, limit: int
    ) -> Sequence[Event]:
        """Events of these calls with `event.seq > seq`, in the order of the list, and of the log for each call."""
        ...

    async def delete_remainder(self, principal: Principal, *, limit: int) -> int:
        """Delete so many of the principal's breakers at origins, its turns at upstreams, and its counts if they are 0.

        Return the number of rows.
        """
        ...


@dataclass(frozen=True, slots=True)
class ErasedDeliveryBatch:
    count: int
    is_done: bool
    """Whether none is left. A batch that reached its limit may say False though none is left."""


class ErasedDeliveries(Protocol):
    """Deliveries and events that erasures remove, with the bodies and attempts of the deliveries.

    Deliveries that another unit has locked are skipped, and then the batch is not done. Nor is one with large bodies, which has
    fewer than `limit`.
    """

    async def delete_of_calls(self, call_ids: Sequence[CallId], *, limit: int) -> ErasedDeliveryBatch: ...

    async def delete_of_webhooks(self, webhook_ids: Sequence[WebhookId], *, limit: int) -> ErasedDeliveryBatch: ...

    async def delete_of_event(self, principal: Principal, event_id: EventId, *, limit: int) -> ErasedDeliveryBatch:
        """Deliveries of one event of this principal. Other principals may have an event of the same id."""
        ...

    async def delete_of_principal(self, erasure: Erasure, *, limit: int) -> ErasedDeliveryBatch:
        """Deliveries of the principal that are not newer than the request."""
        ...

    async def replace_events(self, events: Sequence[Event]) -> None:
        """Write these stubs at the places of their events."""
        ...

    async def delete_events(self, erasure: Erasure, *, limit: int) -> int:
        """Delete the first events of the log up to `head`, and raise the retention floor to the last of them."""
        ...

    async def delete_identity(self, erasure: Erasure, *, limit: int) -> int:
        """Delete the principal's keys, MCP sessions, event types, proven URLs and logins that are not newer than the request.

        Tokens count from their last refresh. At most `limit` of each. Return the largest number.
        """
        ...

    async def overwrite_deleted(self) -> None:
        """From now on, SQLite overwrites what this process deletes with zeros. PostgreSQL has no such setting."""
        ...
