"""Read single events and the latest events of a principal's log."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.errors import NotFound
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter
from ringback.domain.ids import id_milliseconds, is_well_formed_id
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.services.events.events import LAST_SEQ

ID_LENGTH_MAX: Final = 256
"""Longer than the id of any event: an upstream's name, a colon, and 128 characters of its own."""
ID_CLOCK_SECONDS: Final = 60.0
"""How far the time in an event's id and the time of its place in the log may differ: a transaction may wait for a lock between
the two, and clocks of nodes differ."""
EVENTS_VISITED_MAX: Final = 20_000
"""Events that a search for one id visits, some 14 ms: a log with more events in two minutes is searched in part."""


class EventLookups:
    def __init__(self, *, store: Store) -> None:
        self._store = store

    async def get_event(self, caller: Caller, event_id: str) -> Event:
        """The caller's own event; raises `NotFound` for any other id."""
        caller.require_scope(Scope.READ)
        event = None
        if 0 < len(event_id) <= ID_LENGTH_MAX:
            event = await self._store.scan(caller.principal, lambda tx: _find_event(tx, caller.principal, event_id))
        if event is None:
            raise NotFound("No event of yours has this id, or it was deleted when it was too old.")
        return event

    async def list_recent(self, caller: Caller, event_filter: EventFilter, *, limit: int) -> Sequence[Event]:
        """The latest events that match, newest first: at most `limit`, among the last events of the log or of the call."""
        caller.require_scope(Scope.READ)
        return await self._store.scan(
            caller.principal,
            lambda tx: tx.event_log.list_before(caller.principal, LAST_SEQ, event_filter, limit=limit),
        )


async def _find_event(tx: Transaction, principal: Principal, event_id: str) -> Event | None:
    after_seq = until_seq = 0
    if is_well_formed_id("evt", event_id):
        margin = timedelta(seconds=ID_CLOCK_SECONDS)
        try:
            made_at = from_epoch_milliseconds(id_milliseconds(event_id))
            since, until = made_at - margin, made_at + margin
        except OverflowError:  # ten digits reach far beyond the calendar, and models invent ids
            return None
        after_seq = await tx.event_log.last_seq_before(principal, since)
        until_seq = await tx.event_log.last_seq_before(principal, until)
        after_seq = max(after_seq, until_seq - EVENTS_VISITED_MAX)
    return await tx.event_log.find_event(principal, event_id, after_seq=after_seq, until_seq=until_seq)
