"""One call in this process: its record as last known here, the joins that wait for it, and its writes to the state.

target ──report_progress, keep_position──▶ joins at once; the state at most once a second
       ──save, complete──────────────────▶ the state at once, then the joins
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final

from ringback.client.durable.clock import RETRY_BACKOFF, DurableClock
from ringback.client.durable.errors import UnknownHandle
from ringback.client.durable.handle import CallHandle
from ringback.client.durable.journal import CallJournal
from ringback.client.durable.record import CallRecord, Completion, PlainPosition, Position
from ringback.client.models import Progress

log = logging.getLogger(__name__)

SAVE_SECONDS: Final = 1.0
"""The interval between two writes of progress and stream positions, as in the service."""
QUEUED_PROGRESS_MAX: Final = 256
"""Progress that waits for a slow callback of a join. Above the limit the oldest is dropped: newer progress says more."""
LASTING_ATTEMPTS_MAX: Final = 5
"""Writes of what only this process may know, the end of a call or what finds it again: 7.5 s, in which a Redis restarts."""
LEASE_SECONDS: Final = 30.0
"""How long a lease lasts without a renewal: two renewals may be late."""
LEASE_RENEWAL_SECONDS: Final = 10.0

MakeChanges = Callable[[CallRecord], dict[str, Any]]
"""New values of members of the record, from the record. May be called several times."""
_TIMED_OUT: Final = Completion(
    outcome="timed_out",
    error={
        "code": -32603,
        "message": "The call's timeout_seconds passed before the tool returned. It may have done part of its work.",
        "data": {"outcome": "timed_out"},
    },
)


class Join:
    """One waiting join: the progress that it has not seen, and a wake-up."""

    def __init__(self) -> None:
        self.unseen_progress: deque[Progress] = deque(maxlen=QUEUED_PROGRESS_MAX)
        self._changed = asyncio.Event()

    def notify(self) -> None:
        self._changed.set()

    async def wait_for_change(self) -> None:
        await self._changed.wait()
        self._changed.clear()


class LocalCall:
    def __init__(self, record: CallRecord, journal: CallJournal, clock: DurableClock, *, holder: str) -> None:
        """`holder` names this caller in leases."""
        self.record = record
        self._holder = holder
        self.requires_rejoin = False
        """Whether the requester wants the call only if the server keeps it for another connection."""
        self.is_first_start = False
        """Whether no request of this call was sent before, here or elsewhere: a refusal then says that it has not started."""
        self.is_overdue = False
        """Whether the call is cancelled because its `timeout_seconds` are over."""
        self.started = asyncio.Event()
        """Set once the handle can be returned: the call can be rejoined, or never will be."""
        self.clock = clock
        self._journal = journal
        self._joins: set[Join] = set()
        self._unsaved: dict[str, Any] = {}
        self._unsaved_end: dict[str, Any] = {}
        """The end of the call, if only this process knows it because the state cannot be written."""
        self._has_unsaved = asyncio.Event()
        self._writing = asyncio.Lock()

    @property
    def handle(self) -> CallHandle:
        return self.record.handle

    @contextmanager
    def join(self) -> Generator[Join]:
        """Begins with the last stored progress."""
        join = Join()
        if self.record.progress is not None:
            join.unseen_progress.append(self.record.progress)
        self._joins.add(join)
        try:
            yield join
        finally:
            self._joins.discard(join)

    def notify_joins(self) -> None:
        for join in self._joins:
            join.notify()

    def report_progress(self, progress: Progress) -> None:
        """Give the progress to the joins at once, and save it soon. Earlier progress that a target sends again is ignored."""
        if progress == self.record.progress or _is_behind(progress, self.record.progress):
            return
        for join in self._joins:
            join.unseen_progress.append(progress)
        self.record = self.record.model_copy(update={"progress": progress})
        self._unsaved["progress"] = progress
        self._has_unsaved.set()
        self.notify_joins()

    def keep_position(self, position: Position) -> None:
        """Save the position soon: at once if it is the first from which the call can be rejoined."""
        self._unsaved["position"] = position
        self._has_unsaved.set()

    def keep_known_session(self) -> None:
        """Save soon that the server knows the session of the stream, if another resume has found that it does not."""
        if self.record.session_gone_since is not None:
            self._unsaved["session_gone_since"] = None
            self._has_unsaved.set()

    @property
    def is_kept(self) -> bool:
        """Whether the target runs the call to its end, also if no process follows it."""
        position = self.record.position
        return position is not None and position.kind not in {"plain", "mrtr"}

    @property
    def has_lease(self) -> bool:
        return self.record.lease_holder == self._holder

    @property
    def is_leased_elsewhere(self) -> bool:
        return self.record.lease_holder not in {None, self._holder} and self.record.lease_until > self.clock.now()

    async def acquire_lease(self, **changes: Any) -> bool:
        """Become the only process that sends the request, with these changes; False if another process was first."""
        now = self.clock.now()
        return await self._change_lease(
            lambda record: record.lease_holder in {None, self._holder} or record.lease_until <= now,
            {**changes, "lease_holder": self._holder, "lease_until": now + LEASE_SECONDS},
        )

    async def keep_lease(self, **changes: Any) -> bool:
        """As `acquire_lease`, unless the lease has lapsed and another process has said since that the tool has not run."""
        lease_until = self.clock.now() + LEASE_SECONDS
        return await self._change_lease(
            lambda record: record.lease_holder == self._holder, {**changes, "lease_until": lease_until}
        )

    async def revoke_lease(self) -> bool:
        """Let a process that is gone send nothing if it comes back. False if it has sent the request or has its lease again."""
        now = self.clock.now()
        return await self._change_lease(
            lambda record: record.lease_holder is None or record.lease_until <= now,
            {"lease_holder": None, "lease_until": 0.0},
        )

    async def _change_lease(self, is_free: Callable[[CallRecord], bool], changes: dict[str, Any]) -> bool:
        """Write the changes if the request was not sent since the record was last read here, and the lease is free."""
        expected = self.record.position
        is_changed = False
        written: CallRecord | None = None

        def change(record: CallRecord) -> CallRecord:
            nonlocal is_changed, written
            # A state that repeats a write whose response was lost says of the second one that the record was changed.
            is_own_write = written is not None and record == written
            is_changed = record.completion is None and (
                is_own_write or (record.position == expected and is_free(record))
            )
            if not is_changed:
                return record
            written = _changed(record, changes)
            return written

        async with self._writing:
            await self._update(change)
        return is_changed

    async def renew_lease(self) -> None:
        """Renew the lease while this process has it, until cancelled. Raises `UnknownHandle`."""
        while True:
            await self.clock.sleep(LEASE_RENEWAL_SECONDS)
            if self.has_lease:
                await self._save_with_retries(
                    lambda record: self._end_lease_at(record, self.clock.now() + LEASE_SECONDS)
                )

    def _end_lease_at(self, record: CallRecord, lease_until: float) -> dict[str, Any]:
        """Another process may have taken the lease since it was last read here: its lease stays as it is."""
        return {"lease_until": lease_until} if record.lease_holder == self._holder else {}

    async def save_periodically(self) -> None:
        """Save progress and positions, until cancelled. Raises `UnknownHandle`."""
        while True:
            await self._has_unsaved.wait()
            await self._save_with_retries(lambda _: {})
            await self.clock.sleep(SAVE_SECONDS)

    async def _save_with_retries(self, make_changes: MakeChanges, *, failures_max: int | None = None) -> None:
        """Like `save_changes`, until the write succeeds: a state that fails for a moment must not end a running tool."""
        failures = 0
        while True:
            try:
                await self.save_changes(make_changes)
            except UnknownHandle:
                raise
            except Exception:
                failures += 1
                if failures == failures_max:
                    raise
                await self.clock.sleep(min(RETRY_BACKOFF.pause_seconds(failures), LEASE_RENEWAL_SECONDS))
            else:
                return

    async def save(self, **changes: Any) -> None:
        """Write changes of the record, with progress and position that were not saved yet. Raises `UnknownHandle`."""
        await self.save_changes(lambda _: changes)

    async def save_position(self, position: Position, **changes: Any) -> None:
        """Like `save`, and again while the state fails: without the position, no process finds the call again."""
        await self._save_with_retries(lambda _: {"position": position, **changes}, failures_max=LASTING_ATTEMPTS_MAX)

    async def save_changes(self, make_changes: MakeChanges) -> None:
        """Like `save`, for changes that depend on the record as the state has it, because other processes write it, too."""
        async with self._writing:
            unsaved, self._unsaved = self._unsaved, {}
            self._has_unsaved.clear()
            try:
                await self._update(
                    lambda record: _changed(record, {**self._unsaved_end, **unsaved, **make_changes(record)}),
                    reports_own="progress" in unsaved,
                )
            except BaseException:
                self._keep_unsaved(unsaved)
                raise

    async def save_rest(self) -> None:
        """Write what was not saved yet, without a lease of this process."""
        if self.has_lease or self._unsaved or self._unsaved_end:
            await self.save_changes(lambda record: self._end_lease_at(record, 0.0))

    def _keep_unsaved(self, unsaved: dict[str, Any]) -> None:
        """Save these changes with the next write, unless newer ones replace them."""
        self._unsaved = {**unsaved, **self._unsaved}
        if self._unsaved:
            self._has_unsaved.set()

    async def complete(self, completion: Completion) -> None:
        """Write the end of the call, unless another process has."""
        if self.is_overdue and completion.outcome == "cancelled":
            completion = _TIMED_OUT
        end: dict[str, Any] = {
            "completion": completion,
            "input_requests": {},
            "input_responses": {},
            "answered_keys": (),
        }
        try:
            await self._save_with_retries(lambda _: end, failures_max=LASTING_ATTEMPTS_MAX)
        except UnknownHandle:
            raise
        except asyncio.CancelledError:  # the caller is closed meanwhile, and `save_rest` writes the end
            if isinstance(self.record.position, PlainPosition) and completion.outcome != "cancelled":
                self._unsaved_end = end
            raise
        except Exception:
            if not isinstance(self.record.position, PlainPosition):  # else the response came to this process alone
                raise
            log.exception(
                "The end of call %s cannot be written: until it is, only this process knows it", self.handle.id
            )
            self._unsaved_end = end
            self.record = _changed(self.record, end)
            self.notify_joins()
        self.started.set()

    @property
    def has_unsaved_end(self) -> bool:
        """Whether only this process knows the end, also while it tries again to write it."""
        return bool(self._unsaved_end)

    async def refresh(self) -> None:
        """Read what another process wrote, or write the end that only this process knows. Raises `UnknownHandle`."""
        if self.has_unsaved_end:
            await self._save_end()
        else:
            async with self._writing:
                await self._update(lambda record: record)

    async def _save_end(self) -> None:
        try:
            await self.save_rest()
        except UnknownHandle:
            raise
        except Exception as error:  # noqa: BLE001 - the next join tries again
            log.warning("The end of call %s still cannot be written: %s", self.handle.id, error)

    async def _update(self, change: Callable[[CallRecord], CallRecord], *, reports_own: bool = False) -> None:
        record = await self._journal.update(self.handle.id, change)
        if record is None:
            self._unsaved_end = {}
            raise UnknownHandle(
                f"The state no longer holds call {self.handle.id}: it was forgotten, or it has expired."
            )
        if record.completion is not None:
            self._unsaved_end = {}
        elif self._unsaved_end:
            record = _changed(record, self._unsaved_end)
        known_progress = self.record.progress
        is_newer_here = reports_own or "progress" in self._unsaved
        if is_newer_here or _is_behind(record.progress, known_progress):
            record = record.model_copy(update={"progress": known_progress})
        self.record = record
        if record.handle.rejoinable:
            self.started.set()
        if record.progress is not None and record.progress != known_progress:
            for join in self._joins:
                join.unseen_progress.append(record.progress)
        self.notify_joins()


def _changed(record: CallRecord, changes: dict[str, Any]) -> CallRecord:
    """The record with the changes. An end is final, and the handle says what the position makes possible."""
    if record.completion is not None:
        return record
    changed = record.model_copy(update=changes)
    if _is_behind(changed.progress, record.progress):  # another process has followed the call further
        changed = changed.model_copy(update={"progress": record.progress})
    needs_holder = changed.completion is None and (changed.position is None or changed.position.kind == "plain")
    lease = {} if needs_holder else {"lease_holder": None, "lease_until": 0.0}
    return changed.model_copy(update={"handle": _update_handle(changed), **lease})


def _is_behind(progress: Progress | None, known: Progress | None) -> bool:
    return known is not None and (progress is None or progress.progress < known.progress)


def _update_handle(record: CallRecord) -> CallHandle:
    position = record.position
    if position is None:
        return record.handle
    return record.handle.model_copy(
        update={
            "kind": position.kind,
            "rejoinable": position.kind != "plain" or record.completion is not None,
            "call_id": position.call_id if position.kind == "ringback" else None,
        }
    )
