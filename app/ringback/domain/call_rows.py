"""Ports of the store for calls: rows, ends and results, the runner's queue, and tombstones of expired calls."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from ringback.domain import jsontext
from ringback.domain.call import Call, CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.cursor import Page
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal
from ringback.domain.record_inits import quick_init


@dataclass(frozen=True, slots=True, kw_only=True)
class CallFilter:
    client_session_id: str | None = None
    correlation_id: str | None = None
    status: CallStatus | None = None
    upstream: str | None = None
    tool: str | None = None
    outcomes: frozenset[CallOutcome] | None = None
    """Calls that ended with one of these."""
    since: datetime | None = None
    until: datetime | None = None
    """Calls that were created at this time or later are left out."""
    id_prefix: str | None = None
    """The beginning of the id."""
    started: bool | None = None
    """Whether the call was sent to its upstream (`Call.dispatched_at`)."""
    min_runs: int = 0
    """How often the call has run, at least. Zero also finds calls that were never dispatched."""
    min_delivery_attempts: int = 0
    """How many attempts one of the call's deliveries has had, at least: zero, or two and more."""


class CallChange(StrEnum):
    """The columns that an update of a call writes. All but UNATTENDED also write `updated_at`."""

    DISPATCHED = "dispatched"
    """`dispatched_at` and `runs`."""
    HANDLE = "handle"
    PROGRESS = "progress"
    INPUTS = "inputs"
    """Input requests and responses, and the status and phase that follow from them."""
    PARKED = "parked"
    """As INPUTS, and the handle, the progress and the dispatch. The lease ends."""
    QUEUED = "queued"
    """Everything that `call_completion.recover_call` decides: lease, dispatch, and input requests and responses."""
    CANCELLING = "cancelling"
    UNATTENDED = "unattended"
    """`attended_until`."""
    ENDED = "ended"
    """Status, phase, outcome, result, handle, progress and expiry. The lease and input requests end with the call."""


@quick_init
@dataclass(frozen=True, slots=True, kw_only=True)
class EndedCall:
    """The end of a call, and what its row must be for the end to be written."""

    call: Call
    expected: CallStatus
    lease_token: str | None
    """None for a call without a lease."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstone:
    """What remains of an expired or erased call, so that its idempotency key starts no second one.

    A start that was given up has one, too (`services.calls.given_up_starts`).
    """

    call_id: CallId
    principal: Principal
    idempotency_key: str | None
    request_hash: str
    """Empty if the call was erased: the hash covers the arguments."""
    expired_at: datetime
    erased: bool = False
    """Whether the call was erased on request, and has not just expired."""
    task_hash: str | None = None
    """Of the upstream's task that the call followed (`hash_task`): no other principal adopts it."""


def hash_task(upstream: str, task_id: str) -> str:
    return jsontext.sha256(jsontext.dumps([upstream, task_id]))


REMOVED_BYTES_MAX: Final = 2 * 1024 * 1024
"""Arguments and results of the calls that one transaction removes, bodies of deliveries, or data of events. Removing takes some
10 ms a megabyte of the event loop, and twice that of the disk, where SQLite overwrites what it deletes: most builds do, and
every service after its first erasure (measured)."""


def make_tombstone(call: Call, *, expired_at: datetime, erased: bool = False) -> Tombstone:
    task_id = None if call.handle is None else call.handle.task_id
    return Tombstone(
        call_id=call.id,
        principal=call.principal,
        idempotency_key=call.idempotency_key,
        request_hash="" if erased else call.request_hash,
        expired_at=expired_at,
        erased=erased,
        task_hash=None if task_id is None else hash_task(call.upstream, task_id),
    )


LEASED_ARGUMENT_BYTES_MAX: Final = 16 * 1024
"""Arguments and `_meta` of a call that is leased from the queue. A transaction leases hundreds, and decoding takes some 20 ms a
megabyte of the event loop: larger ones are read one by one, before their calls are sent."""


class CallRows(Protocol):
    """All methods but `get_whole` read calls without their arguments."""

    async def insert(self, call: Call) -> None: ...

    async def get(self, call_id: CallId, *, lock: bool = True) -> Call | None:
        """The call. In a write transaction its row is locked until the end of the transaction.

        Without `lock` it is not, for a unit that has locked the head of a log already, and changes no call.
        """
        ...

    async def get_whole(self, call_id: CallId) -> Call | None:
        """The call with its arguments and `_meta`, not locked."""
        ...

    async def get_many(self, call_ids: Collection[CallId]) -> Sequence[Call]:
        """The calls that exist, as `get`. Their rows are locked in the order of their ids."""
        ...

    async def find_by_idempotency_key(self, principal: Principal, key: str) -> Call | None: ...

    async def list_page(
        self, principal: Principal | None, where: CallFilter, *, position: str | None, limit: int
    ) -> Page[Call, str]:
        """Newest first; None: of all principals. `position` is the `next_position` of the previous page."""
        ...

    async def update(self, call: Call, change: CallChange, *, expected: CallStatus, lease_token: str | None) -> bool:
        """Write the columns of this change if the row still has the status `expected` and, if a token is given, that lease.

        Other columns keep the row's values. False means that another writer was first and nothing was written.
        """
        ...

    async def revoke_tokens(self, call_id: CallId, *, now: datetime) -> int | None:
        """Raise the version that the call's resume tokens must carry. Return the new version, or None if the call is gone.

        Nothing else writes the version, so a revoked token never works again.
        """
        ...


class CallCompletionRows(Protocol):
    """The ends of calls, many at a time, and their results."""

    async def end_many(self, ends: Sequence[EndedCall]) -> Collection[CallId]:
        """As `CallRows.update` with `CallChange.ENDED`, for several calls, each named once. Return the written ones' ids."""
        ...

    async def put_results(self, results: Mapping[CallId, bytes]) -> None: ...

    async def get_result(self, call_id: CallId) -> bytes | None: ...


class CallQueue(Protocol):
    """The same rows for the runner and the janitor."""

    async def find_queued_upstreams(self, upstreams: Collection[str]) -> Collection[str]:
        """Those of the upstreams for which calls are queued."""
        ...

    async def lease_queued(
        self,
        upstream: str,
        *,
        owner: str,
        token: str,
        until: datetime,
        limit: int,
        limit_each: int | None = None,
        running: Mapping[Principal, int] | None = None,
        without: Collection[Principal] = (),
    ) -> Sequence[Call]:
        """Lease queued calls of an upstream and set them running, in turns between principals, each principal's oldest first.

        Each principal gets `limit_each` calls at most, less those that it has in `running`. Calls of the principals in
        `without` stay queued.
        They are read with their arguments, unless these have more than `LEASED_ARGUMENT_BYTES_MAX`.
        The turns continue between leases: the principal served longest ago is first.
        """
        ...

    async def take_turn(self, upstream: str, principal: Principal) -> bool:
        """Count a turn for this principal if no call is queued for the upstream. Return whether it was counted."""
        ...

    async def extend_leases(
        self, owner: str, call_ids: Collection[CallId], *, until: datetime, skip_locked: bool = False
    ) -> Mapping[CallId, bool]:
        """Extend this owner's leases of these calls.

        Return the calls whose leases are extended, and for each whether its cancellation was requested. The others are leased
        to another owner, or have ended; with `skip_locked`, another unit may also have locked them.
        """
        ...

    async def find_lease_expired(self, *, now: datetime, limit: int, owner: str | None = None) -> Sequence[Call]:
        """Running calls whose lease ends at or before `now`, and running calls without a lease.

        With `owner`, only those that it has leased.
        """
        ...

    async def find_past_deadline(self, *, now: datetime, grace_end: datetime, limit: int) -> Sequence[Call]:
        """Queued and parked calls whose deadline has passed. The runner checks the deadline of running calls.

        Queued calls for which an upstream has state count once it passed before `grace_end` (`has_no_upstream_state`).
        """
        ...

    async def find_leased(self, *, owner: str, own: bool, limit: int) -> Sequence[Call]:
        """Running calls that this owner has leased (`own`), or that it has not: only for a store that serves it alone."""
        ...

    async def find_by_task(
        self, upstream: str, task_id: str, *, principal: Principal | None = None, lock: bool = False
    ) -> Call | None:
        """The call of this principal, or of any (None), that follows or followed this task of the upstream.

        With `lock`, other units that lock the same task wait until the transaction ends.
        """
        ...


class ScheduledCalls(Protocol):
    """Calls that start later."""

    async def queue_due(self, *, now: datetime, limit: int) -> datetime | None:
        """Queue scheduled calls whose `not_before` is at or before `now`, earliest first.

        Return the `not_before` of the next scheduled call, which is in the past if `limit` left calls behind; None if there is
        none. For calls that another unit has locked, it is a moment later, so that their caller does not ask without a pause.
        """
        ...


class TombstoneRows(Protocol):
    async def lock_id(self, call_id: CallId) -> None:
        """Wait until no other transaction has locked the id; this one has it until its end. The id may be that of no call."""
        ...

    async def find_expired(self, *, now: datetime, limit: int, bytes_max: int) -> Sequence[Call]:
        """Calls to archive: the time of their results is over.

        As many as have `bytes_max` of arguments and results together, but at least one.
        """
        ...

    async def archive(self, *tombstones: Tombstone) -> None:
        """Replace the calls and their results by the tombstones. The calls' own webhooks expire, too."""
        ...

    async def get(self, principal: Principal, *, call_id: CallId | None, key: str | None) -> Tombstone | None:
        """Find a tombstone by the call's id or by its idempotency key."""
        ...

    async def has_task_of_another(self, task_hash: str, principal: Principal) -> bool:
        """Whether a call of another principal followed this task."""
        ...

    async def mark_erased(self, *call_ids: CallId) -> None:
        """Mark the tombstones of expired calls, and remove the hashes of their requests."""
        ...

    async def mark_expired_erased(self, principal: Principal, *, position: int, until: datetime) -> int | None:
        """The same for the calls of a principal that were made until then, among the next tombstones of all principals.

        Begins with position 0. Return the position from which the next step goes on; None after the last tombstone.
        """
        ...

    async def remove(self, *, cutoff: datetime, limit: int) -> int: ...
