"""Appends to logs as several statements, on the other rows of a transaction: for a store without round trips."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from ringback.domain.call import CallPhase
from ringback.domain.event import SUPERSEDING_EVENTS, Event
from ringback.domain.event_rows import ReservedPlaces
from ringback.domain.log_appends import CallLeaseKey, LeasedCalls, LogAppend, Receivers
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal

DELIVERIES_AT_ONCE: Final = 32
"""Deliveries inserted between two turns of the event loop: some 2 ms, encryption included."""


class StepwiseLogAppends:
    """Implements `domain.log_appends.LogAppends`."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    async def lock_leased_calls(self, leases: Sequence[CallLeaseKey]) -> LeasedCalls:
        held = set(leases)
        calls = {
            call.id: call
            for call in await self._tx.calls.get_many({each.call_id for each in leases})
            if call.phase is CallPhase.RUNNING and (call.id, call.lease_token) in held
        }
        return LeasedCalls(calls, await self.reserve_places(Counter(call.principal for call in calls.values())))

    async def reserve_places(self, counts: Mapping[Principal, int]) -> Mapping[Principal, ReservedPlaces]:
        return {each: await self._tx.events.reserve_places(each, counts[each]) for each in sorted(counts)}

    async def find_receivers(self, events: Sequence[Event]) -> Receivers:
        found = Receivers({}, {}, {})
        for principal in dict.fromkeys(event.principal for event in events):
            await self._find_receivers_of(principal, [each for each in events if each.principal == principal], found)
        return found

    async def _find_receivers_of(self, principal: Principal, events: Sequence[Event], found: Receivers) -> None:
        candidates = await self._tx.webhooks.find_candidates(events, catching_up=False)
        await self._tx.call_deliveries.cancel_superseded_progress(
            {each.call_id for each in events if each.call_id and each.name in SUPERSEDING_EVENTS}
        )
        found.webhooks.update({(principal, event.seq): each for event, each in zip(events, candidates, strict=True)})
        ids = {webhook.id for webhooks in candidates for webhook in webhooks}
        if not ids:
            return
        lowest, first_seq = await self._tx.deliveries.lowest_open_seqs(ids), events[0].seq
        found.lowest_open_seqs.update(lowest)
        if earlier := {min(lowest.get(each, first_seq), first_seq) - 1 for each in ids} - {0}:
            ids_by_seq = await self._tx.event_log.get_event_ids(principal, earlier)
            found.earlier_events.update({(principal, seq): event_id for seq, event_id in ids_by_seq.items()})

    async def write(self, append: LogAppend) -> None:
        if append.ends:
            append.require_all_ended(await self._tx.call_completions.end_many(append.ends))
        await self._tx.call_completions.put_results(append.results)
        await self._tx.events.insert(append.events)
        for start in range(0, len(append.deliveries), DELIVERIES_AT_ONCE):
            if start:
                await self._tx.pause()
            await self._tx.deliveries.insert(append.deliveries[start : start + DELIVERIES_AT_ONCE])
