"""Where in the event log a subscription begins, and whether its client has missed events before that (mcp-events §9).

cursor null, new                from now
cursor null, lapsed             from now; truncated if an event matched since it lapsed
cursor                          after it; with maxAgeMs not before that age, and then truncated
cursor of another log, unknown  from now, truncated
cursor older than retention     from the oldest event, truncated
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ringback.domain.clock import seconds
from ringback.domain.cursor import LogPosition, decode_log_position
from ringback.domain.errors import InvalidCursor
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Transaction
from ringback.domain.retry import DAY
from ringback.domain.webhook import Webhook, matches_event
from ringback.notifier.log_positions import log_contains_position
from ringback.protocol.mcp_events.backend import SubscriptionRequest

MISSED_EVENTS_VISITED_MAX: Final = 200
"""Events after a lapse among which a matching one is sought: some milliseconds. If there are more, one may be among them."""
MAX_AGE_SECONDS_MAX: Final = 36_500.0 * DAY
"""A hundred years: older than any event, and within the years that exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStart:
    after_seq: int
    """The subscription receives the events after this position."""
    truncated: bool
    """Whether events before that are missing."""


async def find_start(
    tx: Transaction, webhook: Webhook, request: SubscriptionRequest, *, head: int, lapsed_at: datetime | None
) -> SubscriptionStart:
    """`lapsed_at` is when an earlier life of this subscription ended without its client's doing. The log is locked."""
    if request.cursor is None:
        missed = lapsed_at is not None and await _has_missed_event(tx, webhook, since=lapsed_at)
        return SubscriptionStart(after_seq=head, truncated=missed)
    position = _parse_cursor(request.cursor)
    if position is None or not await log_contains_position(tx, webhook.principal, position):
        return SubscriptionStart(after_seq=head, truncated=True)
    oldest = await _find_oldest_seq(tx, webhook, request)
    return SubscriptionStart(after_seq=max(position.seq, oldest), truncated=position.seq < oldest)


async def _find_oldest_seq(tx: Transaction, webhook: Webhook, request: SubscriptionRequest) -> int:
    """The position before which nothing is replayed: what retention has removed, and what the client finds too old."""
    retention_floor = await tx.event_log.get_retention_floor(webhook.principal)
    if request.max_age_seconds is None:
        return retention_floor
    too_old = tx.now() - seconds(min(request.max_age_seconds, MAX_AGE_SECONDS_MAX))
    return max(retention_floor, await tx.event_log.last_seq_before(webhook.principal, too_old))


async def _has_missed_event(tx: Transaction, webhook: Webhook, *, since: datetime) -> bool:
    lapsed_seq = await tx.event_log.last_seq_before(webhook.principal, since)
    where = EventFilter(call_id=webhook.call_id)
    events = await tx.events.list_after(webhook.principal, lapsed_seq, where, limit=MISSED_EVENTS_VISITED_MAX)
    if len(events) == MISSED_EVENTS_VISITED_MAX:
        return True
    return any(matches_event(webhook, event, now=tx.now()) for event in events)


def _parse_cursor(cursor: str) -> LogPosition | None:
    try:
        return decode_log_position(cursor)
    except InvalidCursor:
        return None
