"""Records for the readers of a log that it lacks events of an upstream.

Either the upstream has lost them: its own log no longer has what came after our cursor. Or no client demanded them for a time.

    the log       an entry `upstream.gap`, so that the log has a place for the gap
    polls         `truncated` for cursors before that place (`EventDemand.gap_seq`)
    webhooks      a `gap` envelope each

What the upstream still has follows as usual. What it has lost is nowhere: a receiver asks the tools of the upstream.
"""

from typing import Final

from ringback.domain.event import Event, ExternalEvent, build_external_event
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import DELIVERY_DUE_TOPIC, log_appended_topic
from ringback.domain.webhook import matches_event
from ringback.notifier.payload import build_gap_delivery

GAP_EVENT_NAME: Final = "upstream.gap"
"""Not an `EventName`: webhooks get the envelope and cannot subscribe to the entry."""
GAP_WEBHOOKS_MAX: Final = 1_000
"""Envelopes of one gap: as many as the default quota of webhooks."""


async def record_lost_events(
    tx: Transaction, principal: Principal, *, ids: IdGenerator, upstream: str, event_name: str, topic: str | None
) -> int:
    """Record the gap in the log of a principal with demand, and return its place. Locks the log."""
    seq, now = await tx.events.reserve_places(principal, 1)
    data = {"upstream": upstream, "event": event_name}
    gap = ExternalEvent(name=GAP_EVENT_NAME, id=ids.new_event_id(), data=data, upstream=upstream)
    entry = build_external_event(principal, gap, event_id=gap.id or ids.new_event_id(), seq=seq, now=now)
    await tx.events.insert([entry])
    await tx.event_demands.mark_gap(principal, event_name, topic or "", seq=seq)
    await _enqueue_gaps(tx, entry, ids=ids, event_name=event_name, topic=topic)
    tx.notify(log_appended_topic(principal))
    return seq


async def _enqueue_gaps(tx: Transaction, entry: Event, *, ids: IdGenerator, event_name: str, topic: str | None) -> None:
    """Insert an envelope for each webhook that receives these events."""
    lost = Event(
        id=entry.id,
        principal=entry.principal,
        seq=entry.seq,
        name=event_name,
        call_id=None,
        client_session_id=None,
        correlation_id=None,
        upstream=entry.upstream,
        tool=None,
        data={},
        created_at=entry.created_at,
        topic=topic,
    )
    (candidates,) = await tx.webhooks.find_candidates([lost], catching_up=True)
    receivers = [webhook for webhook in candidates if matches_event(webhook, lost, now=tx.confirmed_now())]
    gaps = [
        build_gap_delivery(webhook, position=entry.position, delivery_id=ids.new_delivery_id(), now=tx.now())
        for webhook in receivers[:GAP_WEBHOOKS_MAX]
    ]
    if gaps:
        await tx.deliveries.insert(gaps)
        tx.notify(DELIVERY_DUE_TOPIC)
