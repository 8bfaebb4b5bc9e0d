"""Calls as the store keeps them: rows for whoever asks, a queue for the runner, and what is left of those that expired."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol

from ringback.domain.call import Call, CallStatus
from ringback.domain.cursor import Page
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilter:
    client_session_id: str | None = None
    correlation_id: str | None = None
    status: CallStatus | None = None
    upstream: str | None = None
    tool: str | None = None


class CallChange(StrEnum):
    """A kind of change of a call, by the columns that it decides; all but UNATTENDED write `updated_at`, too."""

    DISPATCHED = "dispatched"
    """`dispatched_at` and `runs`."""
    HANDLE = "handle"
    PROGRESS = "progress"
    INPUTS = "inputs"
    """What is asked and answered, and the status and phase that follow from it."""
    PARKED = "parked"
    """As INPUTS; also the handle, the progress, and the lease, which ends."""
    QUEUED = "queued"
    """Who has it, how far it got, and what is asked and answered: all that `domain.recovery` decides."""
    CANCELLING = "cancelling"
    UNATTENDED = "unattended"
    """`attended_until`."""
    ENDED = "ended"
    """Status, phase, outcome, result, handle, progress and expiry; the lease and what is asked end with the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """What is kept of an expired call: enough to keep the promise of its idempotency key."""

    call_id: CallId
    principal: Principal
    idempotency_key: str | None
    request_hash: str
    expired_at: datetime


class CallRows(Protocol):
    async def insert(self, call: Call) -> None: ...

    async def get(self, call_id: CallId) -> Call | None:
        """The call, locked against others until the transaction ends when this is a write."""
        ...

    async def find_by_idempotency_key(self, principal: Principal, key: str) -> Call | None: ...

    async def list_page(
        self, principal: Principal, where: CallFilter, *, position: str | None, limit: int
    ) -> Page[Call, str]:
        """Newest first; `before` is the `next_place` of the previous page."""
        ...

    async def update(self, call: Call, change: CallChange, *, expected: CallStatus, lease_token: str | None) -> bool:
        """Write what this change decides, if the row still has the status `expected` and (when a token is given) that lease.

        Everything else stays as it is in the row, whatever `call` says of it. False means that somebody else was first;
        nothing was written.
        """
        ...

    async def revoke_tokens(self, call_id: CallId, *, now: datetime) -> int | None:
        """Raise the version that resume tokens of this call must carry; the new one, or None when the call is gone.

        Nothing else writes the version, so a token that was revoked never works again.
        """
        ...

    async def put_results(self, results: Mapping[CallId, bytes]) -> None: ...

    async def get_result(self, call_id: CallId) -> bytes | None: ...


class CallQueue(Protocol):
    """The same rows as the runner and the janitor see them."""

    async def lease_queued(
        self, upstream: str, *, owner: str, token: str, until: datetime, limit: int
    ) -> Sequence[Call]:
        """Lease queued calls of an upstream, in fair turns between principals, oldest first within each: they are running then.

        The turns go on from one lease to the next: the principal that was served longest ago comes first.
        """
        ...

    async def take_turn(self, upstream: str, principal: Principal) -> bool:
        """Note that a call of this principal is served now, if none is queued for the upstream; whether that is so."""
        ...

    async def extend_leases(self, owner: str, call_ids: Collection[CallId], *, until: datetime) -> Sequence[CallId]:
        """Prolong this owner's leases of these calls; the ids of those that it still holds."""
        ...

    async def find_lease_expired(self, *, now: datetime, limit: int) -> Sequence[Call]:
        """Running calls that nobody drives any more: those whose lease ran out at or before `now`, and those without one."""
        ...

    async def find_past_deadline(self, *, now: datetime, limit: int) -> Sequence[Call]:
        """Queued and parked calls whose deadline has passed; whoever drives a call watches its deadline itself."""
        ...

    async def find_leased_by_others(self, *, owner: str, limit: int) -> Sequence[Call]:
        """Running calls that another owner has leased, or nobody. Only for a store that is this owner's alone."""
        ...

    async def find_expired(self, *, now: datetime, limit: int) -> Sequence[Call]: ...

    async def find_by_task(self, upstream: str, task_id: str) -> Call | None:
        """The call, of whatever principal, that follows or followed this task of the upstream's."""
        ...


class TombstoneRows(Protocol):
    async def archive(self, tombstone: Tombstone) -> None:
        """Remove the call with its result and leave the tombstone in its place; the call's own webhook expires with it."""
        ...

    async def get(self, principal: Principal, *, call_id: CallId | None, key: str | None) -> Tombstone | None:
        """By the call's id or by its idempotency key."""
        ...

    async def remove(self, *, cutoff: datetime, limit: int) -> int: ...
