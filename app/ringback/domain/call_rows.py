"""Calls as the store keeps them: rows for whoever asks, a queue for the runner, and what is left of those that expired."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from ringback.domain.call import Call, Progress, Status
from ringback.domain.ids import CallId
from ringback.domain.pages import Page
from ringback.domain.principal import Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilter:
    client_session_id: str | None = None
    correlation_id: str | None = None
    status: Status | None = None
    upstream: str | None = None
    tool: str | None = None


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

    async def by_idempotency_key(self, principal: Principal, key: str) -> Call | None: ...

    async def page(self, principal: Principal, where: CallFilter, *, before: str | None, limit: int) -> Page[Call, str]:
        """Newest first; `before` is the `next_place` of the previous page."""
        ...

    async def update(self, call: Call, *, expected: Status, lease_token: str | None) -> bool:
        """Write every changing column if the row still has the status `expected` and (when a token is given) that lease.

        False means that somebody else was first; nothing was written.
        """
        ...

    async def save_progress(self, call_id: CallId, progress: Progress, *, now: datetime, lease_token: str) -> bool: ...

    async def put_results(self, results: Mapping[CallId, bytes]) -> None: ...

    async def result(self, call_id: CallId) -> bytes | None: ...


class CallQueue(Protocol):
    """The same rows as the runner and the janitor see them."""

    async def lease(self, upstream: str, *, owner: str, token: str, until: datetime, limit: int) -> Sequence[Call]:
        """Lease queued calls of an upstream, in fair turns between principals, oldest first within each: they are running then.

        The turns go on from one lease to the next: the principal that was served longest ago comes first.
        """
        ...

    async def extend(self, owner: str, call_ids: Collection[CallId], *, until: datetime) -> Sequence[CallId]:
        """Prolong this owner's leases of these calls; the ids of those that it still holds."""
        ...

    async def lapsed(self, *, now: datetime, limit: int) -> Sequence[Call]:
        """Running calls that nobody drives any more: those whose lease ran out at or before `now`, and those without one."""
        ...

    async def overdue(self, *, now: datetime, limit: int) -> Sequence[Call]:
        """Queued and parked calls whose deadline has passed; whoever drives a call watches its deadline itself."""
        ...

    async def release_all(self) -> int:
        """Void every lease at once; how many. Only for a store that proves at start that no other process serves it.

        The calls stay running, and have lapsed: what becomes of them is `domain.recovery`'s to say.
        """
        ...

    async def expired(self, *, now: datetime, limit: int) -> Sequence[Call]: ...

    async def of_task(self, upstream: str, task_id: str) -> Call | None:
        """The call, of whatever principal, that follows or followed this task of the upstream's."""
        ...


class TombstoneRows(Protocol):
    async def bury(self, tombstone: Tombstone) -> None:
        """Remove the call with its result and leave the tombstone in its place; the call's own webhook expires with it."""
        ...

    async def get(self, principal: Principal, *, call_id: CallId | None, key: str | None) -> Tombstone | None:
        """By the call's id or by its idempotency key."""
        ...

    async def remove(self, *, older_than: datetime, limit: int) -> int: ...
