"""Calls: rows, ends and results, the queue that the runner and the janitor work from, and tombstones of expired calls."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from ringback.domain.call import MRTR_DRIVER, Call, CallStatus
from ringback.domain.call_outcome import UNSUCCESSFUL_OUTCOMES
from ringback.domain.call_rows import LEASED_ARGUMENT_BYTES_MAX, CallChange, CallFilter, EndedCall, Tombstone
from ringback.domain.cursor import Page
from ringback.domain.encryption import Sealer
from ringback.domain.ids import CallId, first_id_at
from ringback.domain.principal import Principal
from ringback.storage.rows.call_content import open_arguments, open_result, seal_arguments, seal_result
from ringback.storage.rows.columns import RECORDS, column_to_instant, count_bytes, instant_to_column, json_to_column
from ringback.storage.rows.paging import ROWS_SCANNED_MAX, encode_id_range, fetch_scanned_page
from ringback.storage.rows.statements import Row
from ringback.storage.rows.unit import SqlRows

_CALL: Final = RECORDS.call
_WHOLE_CALL: Final = RECORDS.whole_call
_TOMBSTONE: Final = RECORDS.tombstone
_ANY_TIME: Final = 2**63 - 1
"""Later than every instant in a column."""
_HANDLE_OF_ROUNDS: Final = f'["{MRTR_DRIVER}",%'
"""The stored form of a handle whose upstream keeps no state between two rounds."""
LOCKED_RECHECK: Final = timedelta(milliseconds=100)
"""When scheduled calls are looked at again that are due and that another unit has locked. Mostly it queues them itself."""
_encode_end_columns: Final = _CALL.encoder(
    (
        "id",
        "status",
        "phase",
        "outcome",
        "progress",
        "error",
        "result_bytes",
        "result_sha256",
        "handle",
        "input_requests",
        "input_responses",
        "cancel_requested",
        "updated_at",
        "finished_at",
        "expires_at",
    )
)
"""The columns that an end writes, in the order in which `end_many` reads them."""


def encode_ends(ends: Sequence[EndedCall]) -> str:
    """The rows of `end_many`."""
    return json_to_column([[*_encode_end_columns(end.call).values(), end.expected, end.lease_token] for end in ends])


def encode_new_call(call: Call) -> dict[str, Any]:
    """The columns of a new call, with the bytes that its arguments and `_meta` have before they are sealed."""
    row = _WHOLE_CALL.encode(call)
    row["argument_bytes"] = count_bytes(row["arguments"]) + count_bytes(row["meta"])
    return row


def decode_whole_call(row: Row, sealer: Sealer) -> Call:
    """The call of a row that begins with the columns of a whole call, with its arguments unsealed."""
    arguments, meta = open_arguments(row, sealer)
    return _WHOLE_CALL.decode(row, arguments=arguments, meta=meta)


class SqlCalls(SqlRows, noun="calls"):
    """Implements `domain.call_rows.CallRows`."""

    async def insert(self, call: Call) -> None:
        row = encode_new_call(call)
        await self._sql.execute("insert", **row)
        await self._sql.execute("insert_input", **seal_arguments(row, self._unit.sealer))

    async def get(self, call_id: CallId, *, lock: bool = True) -> Call | None:
        sql = self._sql if lock else self._sql.without_locks()
        return await sql.fetch_record("get", _CALL, id=call_id)

    async def get_whole(self, call_id: CallId) -> Call | None:
        row = await self._sql.fetch_one("get_whole", id=call_id)
        return None if row is None else decode_whole_call(row, self._unit.sealer)

    async def get_many(self, call_ids: Collection[CallId]) -> Sequence[Call]:
        return await self._sql.fetch_records("by_ids", _CALL, ids=self._sql.array(list(call_ids)))

    async def find_by_idempotency_key(self, principal: Principal, key: str) -> Call | None:
        return await self._sql.fetch_record("by_idempotency_key", _CALL, principal=principal, key=key)

    async def list_page(
        self, principal: Principal | None, where: CallFilter, *, position: str | None, limit: int
    ) -> Page[Call, str]:
        return await fetch_scanned_page(
            self._sql,
            _page_statement(principal, where),
            _CALL.decode,
            limit=limit,
            principal=principal,
            client_session_id=where.client_session_id,
            correlation_id=where.correlation_id,
            status=where.status,
            upstream=where.upstream,
            tool=where.tool,
            started=where.started,
            outcomes=None if where.outcomes is None else self._sql.array(sorted(where.outcomes)),
            min_runs=where.min_runs,
            min_delivery_attempts=where.min_delivery_attempts,
            **encode_id_range(
                "call", position=position, since=where.since, until=where.until, id_prefix=where.id_prefix
            ),
        )

    async def update(self, call: Call, change: CallChange, *, expected: CallStatus, lease_token: str | None) -> bool:
        statement = f"update_{change}"
        row = _CALL.encode_for(self._sql.parameters(statement), call)
        return await self._sql.execute(statement, expected=expected, held_token=lease_token, **row) == 1

    async def revoke_tokens(self, call_id: CallId, *, now: datetime) -> int | None:
        row = await self._sql.fetch_one("revoke_tokens", id=call_id, now=instant_to_column(now))
        return None if row is None else row["token_version"]


def _page_statement(principal: Principal | None, call_filter: CallFilter) -> str:
    """The statement whose index fits best. The client's own ids come first: by them a client finds a call that it lost."""
    if principal is None:
        return _page_of_all(call_filter)
    if call_filter.client_session_id is not None:
        return "page_of_session"
    if call_filter.correlation_id is not None:
        return "page_of_correlation"
    if (repeated := _page_of_repeated(call_filter)) is not None:
        return f"page_of_{repeated}"
    if _is_unsuccessful(call_filter):
        return "page_of_unsuccessful"
    return "page" if call_filter.status in {None, CallStatus.COMPLETED} else "page_of_status"


def _page_of_all(call_filter: CallFilter) -> str:
    if (repeated := _page_of_repeated(call_filter)) is not None:
        return f"page_of_all_{repeated}"
    if call_filter.status is CallStatus.INPUT_REQUIRED:
        return "page_of_all_awaiting_input"
    return "page_of_all_unsuccessful" if _is_unsuccessful(call_filter) else "page_of_all"


def _page_of_repeated(call_filter: CallFilter) -> str | None:
    """The index of calls that ran again is the smaller one."""
    if call_filter.min_runs > 1:
        return "rerun"
    return "retried" if call_filter.min_delivery_attempts > 1 else None


def _is_unsuccessful(call_filter: CallFilter) -> bool:
    return call_filter.outcomes is not None and call_filter.outcomes <= UNSUCCESSFUL_OUTCOMES


class SqlCallCompletions(SqlRows, noun="call_completions"):
    """Implements `domain.call_rows.CallCompletionRows`."""

    async def end_many(self, ends: Sequence[EndedCall]) -> Collection[CallId]:
        if not ends:
            return ()
        return {row["id"] for row in await self._sql.fetch_all("end_many", ends=encode_ends(ends))}

    async def put_results(self, results: Mapping[CallId, bytes]) -> None:
        sealer = self._unit.sealer
        await self._sql.execute_many(
            "put_result", [seal_result(call_id, body, sealer) for call_id, body in results.items()]
        )

    async def get_result(self, call_id: CallId) -> bytes | None:
        row = await self._sql.fetch_one("result", call_id=call_id)
        return None if row is None else open_result(call_id, row, self._unit.sealer)


class SqlCallQueue(SqlRows, noun="call_queue"):
    """Implements `domain.call_rows.CallQueue`."""

    async def find_queued_upstreams(self, upstreams: Collection[str]) -> Collection[str]:
        rows = await self._sql.fetch_all("queued_upstreams", upstreams=self._sql.array(upstreams))
        return {row["upstream"] for row in rows}

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
        queued = await self._sql.fetch_all(
            "queued",
            upstream=upstream,
            limit=limit,
            limit_each=limit if limit_each is None else limit_each,
            running=json_to_column(running or {}),
            without=self._sql.array(list(without)),
        )
        if not queued:
            return []
        ids = self._sql.array([row["id"] for row in queued])
        await self._sql.execute("lease", ids=ids, owner=owner, token=token, until=instant_to_column(until))
        served = _in_last_served_order([row["principal"] for row in queued])
        await self._sql.execute("take_turns", upstream=upstream, principals=self._sql.array(served))
        rows = await self._sql.fetch_all("leased_by_ids", ids=ids, argument_bytes_max=LEASED_ARGUMENT_BYTES_MAX)
        return [decode_whole_call(row, self._unit.sealer) for row in rows]

    async def take_turn(self, upstream: str, principal: Principal) -> bool:
        if (free := await self._sql.fetch_one("free_turn", upstream=upstream, principal=principal)) is None:
            return False
        if not free["is_taken"]:
            await self._sql.execute("take_turns", upstream=upstream, principals=self._sql.array([principal]))
        return True

    async def extend_leases(
        self, owner: str, call_ids: Collection[CallId], *, until: datetime, skip_locked: bool = False
    ) -> Mapping[CallId, bool]:
        extended = await self._sql.fetch_all(
            "extend_unlocked" if skip_locked else "extend",
            owner=owner,
            ids=self._sql.array(list(call_ids)),
            until=instant_to_column(until),
        )
        return {row["id"]: bool(row["cancel_requested"]) for row in extended}

    async def find_lease_expired(self, *, now: datetime, limit: int, owner: str | None = None) -> Sequence[Call]:
        if owner is None:
            return await self._sql.fetch_records("lease_expired", _CALL, now=instant_to_column(now), limit=limit)
        return await self._sql.fetch_records(
            "lease_expired_of", _CALL, now=instant_to_column(now), limit=limit, owner=owner
        )

    async def find_past_deadline(self, *, now: datetime, grace_end: datetime, limit: int) -> Sequence[Call]:
        return await self._sql.fetch_records(
            "past_deadline",
            _CALL,
            now=instant_to_column(now),
            grace_end=instant_to_column(grace_end),
            stateless_handle=_HANDLE_OF_ROUNDS,
            limit=limit,
        )

    async def find_leased(self, *, owner: str, own: bool, limit: int) -> Sequence[Call]:
        return await self._sql.fetch_records("leased", _CALL, owner=owner, own=own, limit=limit)

    async def find_by_task(
        self, upstream: str, task_id: str, *, principal: Principal | None = None, lock: bool = False
    ) -> Call | None:
        if lock:
            await self._sql.execute("lock_task", upstream=upstream, task_id=task_id)
        if principal is None:
            return await self._sql.fetch_record("by_task", _CALL, upstream=upstream, task_id=task_id)
        return await self._sql.fetch_record(
            "own_by_task", _CALL, upstream=upstream, task_id=task_id, principal=principal
        )


def _in_last_served_order(principals: Sequence[Principal]) -> list[Principal]:
    """Each principal once, ordered by its last place in the sequence."""
    return list(reversed(dict.fromkeys(reversed(principals))))


class SqlScheduledCalls(SqlRows, noun="scheduled_calls"):
    """Implements `domain.call_rows.ScheduledCalls`."""

    async def queue_due(self, *, now: datetime, limit: int) -> datetime | None:
        next_start_at = await self._find_next()
        if next_start_at is None or next_start_at > now:
            return next_start_at
        queued = await self._sql.execute("queue_due", now=instant_to_column(now), limit=limit)
        next_start_at = await self._find_next()
        is_locked = next_start_at is not None and next_start_at <= now and queued < limit
        return now + LOCKED_RECHECK if is_locked else next_start_at

    async def _find_next(self) -> datetime | None:
        row = await self._sql.fetch_one("next")
        return None if row is None else column_to_instant(row["not_before"])


class SqlTombstones(SqlRows, noun="tombstones"):
    """Implements `domain.call_rows.TombstoneRows`."""

    async def lock_id(self, call_id: CallId) -> None:
        await self._sql.execute("lock_id", call_id=call_id)

    async def find_expired(self, *, now: datetime, limit: int, bytes_max: int) -> Sequence[Call]:
        return await self._sql.fetch_records(
            "expired", _CALL, now=instant_to_column(now), limit=limit, bytes_max=bytes_max
        )

    async def archive(self, *tombstones: Tombstone) -> None:
        rows = [_TOMBSTONE.encode(tombstone) for tombstone in tombstones]
        await self._sql.execute("delete_calls", ids=self._sql.array([row["call_id"] for row in rows]))
        await self._sql.execute_many("expire_own_webhook", rows)
        await self._sql.execute_many("insert", rows)

    async def get(self, principal: Principal, *, call_id: CallId | None, key: str | None) -> Tombstone | None:
        return await self._sql.fetch_record("get", _TOMBSTONE, principal=principal, call_id=call_id, key=key)

    async def has_task_of_another(self, task_hash: str, principal: Principal) -> bool:
        return await self._sql.fetch_one("task_of_another", task_hash=task_hash, principal=principal) is not None

    async def mark_erased(self, *call_ids: CallId) -> None:
        await self._sql.execute_many("mark_erased", [{"call_id": call_id} for call_id in call_ids])

    async def mark_expired_erased(self, principal: Principal, *, position: int, until: datetime) -> int | None:
        end = await self._sql.fetch_one("end_of_walk", first=position, scan=ROWS_SCANNED_MAX)
        before = None if end is None else max(end["expired_at"], position + 1)
        await self._sql.execute(
            "mark_expired_erased",
            principal=principal,
            first=position,
            before=_ANY_TIME if before is None else before,
            before_id=first_id_at("call", until + timedelta(milliseconds=1)),
        )
        return before

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        return await self._sql.execute("remove", older_than=instant_to_column(cutoff), limit=limit)
