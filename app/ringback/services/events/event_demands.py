"""Stores a principal's demand for events that are recorded only while a client demands them.

    event_types       demands for the events of upstreams
    change_demands    demands for changes of upstreams

A demand is stored, because the node that follows the upstream may be another one. Each poll renews it; most find it renewed.

A demand that begins puts a gap into the log: what happened before is not in it. Each reader with an older cursor learns that,
not only the one whose request began the demand: its response may be lost, and the principal may have other readers.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, NamedTuple

from ringback.domain.cursor import decode_log_position
from ringback.domain.errors import InvalidCursor, QuotaExceeded
from ringback.domain.event_types import DEMAND_SECONDS, EventDemand, split_name
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller
from ringback.notifier.lost_events import record_lost_events
from ringback.services.access.api_keys import require_held_key

DEMANDS_MAX: Final = 256
"""Different demands of one principal, each with a name and arguments. Each may be a request that stays open at an upstream."""
UPSTREAM_DEMANDS_MAX: Final = 64
"""Different names and arguments that all principals together demand of one upstream. Each may be a request that stays open."""
PRINCIPAL_SHARE_MAX: Final = 32
"""Of those 64, how many one principal may demand: half, so that no principal uses up an upstream for all others."""

RequireDemandQuota = Callable[[Transaction, EventDemand], Awaitable[None]]
"""Raises `QuotaExceeded` if a new demand exceeds the quotas of its upstream."""


class DemandedEvents(NamedTuple):
    topic: str | None
    """The topic of these events in the log."""
    is_new: bool
    """Whether the principal had no demand for them before. The log then lacks what happened before."""
    gap_seq: int = 0
    """The place in the log of the last gap: before it, the upstream had lost events, or no client demanded them."""

    def has_missed_events(self, cursor: str | None) -> bool:
        """Whether events after this cursor are missing in the log. A reader without a cursor begins now."""
        if cursor is None:
            return False
        try:
            return self.is_new or decode_log_position(cursor).seq < self.gap_seq
        except InvalidCursor:
            return False  # the read of the log reports it


class _KnownDemand(NamedTuple):
    """What was stored of a demand before it was renewed."""

    stored: EventDemand | None
    is_current: bool
    """Whether the events were demanded until now, by the last poll or by a webhook. Otherwise the log lacks some."""


async def renew_demand(
    store: Store,
    caller: Caller,
    demand: EventDemand,
    *,
    ids: IdGenerator,
    topic: str,
    require_quota: RequireDemandQuota,
) -> DemandedEvents:
    """Store the demand, unless less than half of its time is over. Return what readers must know of the time before.

    Notifies `topic` if the demand begins. Raises `QuotaExceeded`.
    """
    known = await store.read(lambda tx: _read_known(tx, demand))
    if known.stored is None or known.stored.polled_until < demand.polled_until - timedelta(seconds=DEMAND_SECONDS / 2):
        await store.write_for(
            caller.principal, lambda tx: _save(tx, caller, demand, ids=ids, topic=topic, require_quota=require_quota)
        )
    gap_seq = 0 if known.stored is None else known.stored.gap_seq
    return DemandedEvents(demand.topic or None, is_new=not known.is_current, gap_seq=gap_seq)


async def require_upstream_demand_quota(tx: Transaction, demand: EventDemand) -> None:
    """The service follows each name with arguments once at the upstream, for all principals that demand it."""
    upstream = split_name(demand.event_name)[0] or ""
    demanded = await tx.event_demands.list_of_upstream(upstream, demand.principal, now=tx.now())
    own = {(each.event_name, each.topic) for each in demanded if each.is_own}
    known = {(each.event_name, each.topic) for each in demanded}
    wanted = (demand.event_name, demand.topic)
    if wanted not in own and len(own) >= PRINCIPAL_SHARE_MAX:
        raise demand_quota_exceeded(
            "upstream_events",
            PRINCIPAL_SHARE_MAX,
            "Unsubscribe from some events of this upstream, or use fewer different arguments.",
        )
    if wanted not in known and len(known) >= UPSTREAM_DEMANDS_MAX:
        raise demand_quota_exceeded(
            "events_of_upstream",
            UPSTREAM_DEMANDS_MAX,
            "All principals share it. Try again later, or without arguments.",
        )


def demand_quota_exceeded(quota: str, limit: int, advice: str) -> QuotaExceeded:
    return QuotaExceeded(
        f"The quota '{quota}' of {limit} is used up. {advice}",
        retry_after_seconds=int(DEMAND_SECONDS),
        quota=quota,
        limit=limit,
    )


async def _save(
    tx: Transaction,
    caller: Caller,
    demand: EventDemand,
    *,
    ids: IdGenerator,
    topic: str,
    require_quota: RequireDemandQuota,
) -> None:
    """The log's lock makes two new demands of a principal at once count one after the other."""
    await require_held_key(tx, caller)
    head = await tx.event_log.get_head(demand.principal, lock=True)
    known = await _read_known(tx, demand)
    if known.stored is None and await tx.event_demands.count_of_principal(demand.principal) >= DEMANDS_MAX:
        raise demand_quota_exceeded(
            "event_demands", DEMANDS_MAX, "Poll or subscribe to fewer event types, or with fewer arguments."
        )
    # The row of an ended demand stays for up to a minute.
    if known.stored is None or known.stored.polled_until <= tx.now():
        await require_quota(tx, demand)
        tx.notify(topic)
    await tx.event_demands.save(demand)
    if not known.is_current and head > 0:  # no cursor is older than an empty log
        await record_lost_events(
            tx,
            demand.principal,
            ids=ids,
            upstream=split_name(demand.event_name)[0] or demand.arguments["upstream"],
            event_name=demand.event_name,
            topic=demand.topic or None,
        )


async def _read_known(tx: Transaction, demand: EventDemand) -> _KnownDemand:
    stored = await tx.event_demands.get(demand.principal, demand.event_name, demand.topic)
    if stored is None or stored.polled_until > tx.now():
        return _KnownDemand(stored, is_current=stored is not None)
    is_current = await tx.event_demands.is_current(demand.principal, demand.event_name, demand.topic, now=tx.now())
    return _KnownDemand(stored, is_current=is_current)
