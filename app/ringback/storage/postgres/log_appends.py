"""Appends to logs as one statement for each method, because every statement is a round trip under the lock of a log."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.clock_confirmation import latest_of_right_clock
from ringback.domain.event import SUPERSEDING_EVENTS, Event
from ringback.domain.event_rows import ReservedPlaces
from ringback.domain.ids import CallId, EventId
from ringback.domain.log_appends import CallLeaseKey, LeasedCalls, LogAppend, Receivers
from ringback.domain.principal import Principal
from ringback.storage.postgres.merged_rows import encode_for_matching, read_candidates
from ringback.storage.rows.call_content import seal_result
from ringback.storage.rows.calls import SqlCallCompletions, encode_ends
from ringback.storage.rows.columns import RECORDS, instant_to_column, json_to_column
from ringback.storage.rows.deliveries import encode_new_deliveries, seal_body
from ringback.storage.rows.unit import Pause, SqlRows

SEALED_AT_ONCE: Final = 32
"""Bodies encrypted between two turns of the event loop."""
RESULTS_TOGETHER_BYTES_MAX: Final = 4 * 1024 * 1024
"""Results in one statement. A batch of ends may have two gigabytes of them, and a statement is copied several times."""
_EVENT_COLUMNS: Final = (
    *(
        "event_ids",
        "event_principals",
        "event_seqs",
        "event_names",
        "event_calls",
        "event_sessions",
        "event_correlations",
    ),
    *("event_upstreams", "event_tools", "event_data", "event_times", "event_occurrences", "event_topics"),
)
"""The parameters of `write`, in the order of the event's columns."""


class PostgresLogAppends(SqlRows, noun="log_appends"):
    """Implements `domain.log_appends.LogAppends`."""

    async def lock_leased_calls(self, leases: Sequence[CallLeaseKey]) -> LeasedCalls:
        rows = await self._sql.fetch_all(
            "lock_leased_calls",
            ids=[each.call_id for each in leases],
            leases=[f"{each.call_id} {each.lease_token}" for each in leases],
            now=instant_to_column(self._unit.now),
            latest=instant_to_column(latest_of_right_clock(self._unit.now)),
        )
        calls = [RECORDS.call.decode(row) for row in rows]
        counts: dict[Principal, int] = {}
        for call in calls:
            counts[call.principal] = counts.get(call.principal, 0) + 1
        places = {call.principal: (row["head"], row["last_at"]) for call, row in zip(calls, rows, strict=True)}
        return LeasedCalls(
            {call.id: call for call in calls},
            {each: _reserved(head, counts[each], last_at) for each, (head, last_at) in places.items()},
        )

    async def reserve_places(self, counts: Mapping[Principal, int]) -> Mapping[Principal, ReservedPlaces]:
        if not counts:
            return {}
        rows = await self._sql.fetch_all(
            "reserve_places",
            principals=list(counts),
            counts=list(map(str, counts.values())),
            now=instant_to_column(self._unit.now),
            latest=instant_to_column(latest_of_right_clock(self._unit.now)),
        )
        return {
            (principal := Principal(row["principal"])): _reserved(row["seq"], counts[principal], row["last_at"])
            for row in rows
        }

    async def find_receivers(self, events: Sequence[Event]) -> Receivers:
        rows = await self._sql.fetch_all(
            "find_receivers",
            events=json_to_column(
                [[*encode_for_matching(each, each.seq), each.name in SUPERSEDING_EVENTS] for each in events]
            ),
            now=instant_to_column(self._unit.confirmed_now),
            catching_up=False,
        )
        places = [(each.principal, each.seq) for each in events]
        receivers = Receivers(await read_candidates(rows, places, self._unit.webhook_reader), {}, {})
        for row in rows:
            if row["lowest_seq"] is not None:
                receivers.lowest_open_seqs[row["id"]] = row["lowest_seq"]
            if row["earlier_id"] is not None:
                receivers.earlier_events[row["log"], row["earlier_seq"]] = EventId(row["earlier_id"])
        return receivers

    async def write(self, append: LogAppend) -> None:
        results, large = self._seal_results(append)
        rows = await self._sql.fetch_all(
            "write",
            ends=encode_ends(append.ends),
            result_calls=[each["call_id"] for each in results],
            result_bodies=[each["body"] for each in results],
            result_keys=[each["key_id"] for each in results],
            **_encode_events(append.events),
            deliveries=encode_new_deliveries(append.deliveries),
            body_deliveries=[each.id for each in append.deliveries],
            bodies=await self._seal_bodies(append),
            body_principals=[each.principal for each in append.deliveries],
        )
        append.require_all_ended([row["id"] for row in rows])
        if large:
            await SqlCallCompletions(self._unit).put_results(large)

    def _seal_results(self, append: LogAppend) -> tuple[Sequence[Mapping[str, Any]], Mapping[CallId, bytes]]:
        """The columns of results for one statement, and those that are written one by one."""
        results: list[Mapping[str, Any]] = []
        large: dict[CallId, bytes] = {}
        size = 0
        for call_id, body in append.results.items():
            if size + len(body) > RESULTS_TOGETHER_BYTES_MAX:
                large[call_id] = body
            else:
                size += len(body)
                results.append(seal_result(call_id, body, self._unit.sealer))
        return results, large

    async def _seal_bodies(self, append: LogAppend) -> list[bytes]:
        bodies: list[bytes] = []
        for delivery in append.deliveries:
            bodies.append(seal_body(delivery, self._unit.sealer))
            if not len(bodies) % SEALED_AT_ONCE:
                await Pause()
        return bodies


def _reserved(head: int, count: int, last_at: int) -> ReservedPlaces:
    return ReservedPlaces(head - count + 1, from_epoch_milliseconds(last_at))


def _encode_events(events: Sequence[Event]) -> dict[str, list[Any]]:
    """The columns of all events, by the parameters of `write`."""
    rows = [list(RECORDS.event.encode(event).values()) for event in events]
    return {name: [row[place] for row in rows] for place, name in enumerate(_EVENT_COLUMNS)}
