"""Where in the event log a subscription begins, and whether its client has missed events before that (mcp-events §9).

A subscription that begins, for the first time or after it lapsed:

cursor null, new                from now
cursor null, lapsed             from now; truncated if an event matched since it lapsed, or the log lacks events since
cursor                          after it; with maxAgeMs not before that age; truncated if that skips events that match, or the
                                log lacks events of the upstream since
unknown cursor                  from now, truncated
cursor of another log or older  from the oldest event, truncated

A refresh of a live subscription:

cursor null, or after its last beginning       nothing is missed; so a client may repeat the cursor with which it began
cursor before its last beginning               after the cursor, as above. Another request has begun the subscription again:
                                               one without a cursor that a frozen node executed after it had lapsed
unknown cursor, or of another log              nothing
"""

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from ringback.domain.change_subscriptions import ChangeSubscription
from ringback.domain.cursor import LogPosition, decode_log_position
from ringback.domain.errors import InvalidCursor
from ringback.domain.event import EventName
from ringback.domain.event_rows import EventFilter
from ringback.domain.event_types import is_own_name
from ringback.domain.ports import Transaction
from ringback.domain.webhook import Webhook, matches_event
from ringback.notifier.log_positions import log_contains_position
from ringback.protocol.mcp_events.backend import SubscriptionRequest
from ringback.services.events.event_polls import EventRequest, read_log_start
from ringback.services.webhooks.webhook_checks import subscribes_to_changes

MISSED_EVENTS_VISITED_MAX: Final = 200
"""Events after a lapse among which a matching one is sought: some milliseconds. If there are more, one may be among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionStart:
    after_seq: int
    """The subscription receives the events after this position."""
    truncated: bool
    """Whether events before that are missing."""
    began_after: int
    """A cursor before this position is older than the request's. It is `after_seq`, unless a maximum age skips events."""


async def find_start(
    tx: Transaction, webhook: Webhook, request: SubscriptionRequest, *, head: int, lapsed_at: datetime | None
) -> SubscriptionStart:
    """`lapsed_at` is when this subscription lapsed before, for want of a refresh. The log is locked."""
    start = await _find_start(tx, webhook, request, head=head, lapsed_at=lapsed_at)
    begins_now = request.cursor is None and lapsed_at is None
    if begins_now or not subscribes_to_changes(webhook) or await _are_changes_recorded(tx, webhook):
        return start
    return replace(start, truncated=True)


async def _find_start(
    tx: Transaction, webhook: Webhook, request: SubscriptionRequest, *, head: int, lapsed_at: datetime | None
) -> SubscriptionStart:
    if request.cursor is None:
        missed = lapsed_at is not None and await _has_missed_event(tx, webhook, request.name, since=lapsed_at)
        return SubscriptionStart(after_seq=head, truncated=missed, began_after=head)
    of_any_age = EventRequest(event_filter=_to_filter(webhook, request), cursor=request.cursor)
    began = start = await read_log_start(tx, webhook.principal, of_any_age)
    if request.max_age_seconds is not None:
        polled = replace(of_any_age, max_age_seconds=request.max_age_seconds)
        start = await read_log_start(tx, webhook.principal, polled)
    return SubscriptionStart(after_seq=start.position.seq, truncated=start.is_truncated, began_after=began.position.seq)


async def find_earlier_start(
    tx: Transaction, webhook: Webhook, request: SubscriptionRequest, *, began_after: int
) -> SubscriptionStart | None:
    """Where a live subscription begins for a client whose cursor is before its beginning; None for every other client.

    What was sent since the beginning is sent again: the catch-up from there ends at the head of the log, which is locked.
    """
    cursor = _read_cursor(request)
    if cursor is None or cursor.seq >= began_after or not await log_contains_position(tx, webhook.principal, cursor):
        return None
    start = await find_start(tx, webhook, request, head=began_after, lapsed_at=None)
    return replace(start, began_after=min(start.began_after, began_after))


def _read_cursor(request: SubscriptionRequest) -> LogPosition | None:
    try:
        return None if request.cursor is None else decode_log_position(request.cursor)
    except InvalidCursor:
        return None


def _to_filter(webhook: Webhook, request: SubscriptionRequest) -> EventFilter:
    """The events that match the subscription, as a poll for them."""
    is_change = request.name == EventName.UPSTREAM_CHANGED
    return EventFilter(
        name=request.name,
        topic=None if is_own_name(request.name) else webhook.topic or "",
        call_id=webhook.call_id,
        client_session_id=webhook.client_session_id,
        correlation_id=webhook.correlation_id if webhook.match_correlation else None,
        upstream=webhook.upstream,
        tool=webhook.tool,
        resource_uris=frozenset({webhook.resource_uri}) if is_change else None,
    )


async def _are_changes_recorded(tx: Transaction, webhook: Webhook) -> bool:
    """Whether changes of the upstream are recorded for another webhook, or a poll or stream, of the principal already."""
    wanted = ChangeSubscription(
        principal=webhook.principal, upstream=webhook.upstream or "", resource_uri=webhook.resource_uri
    )
    return await tx.change_subscriptions.has_subscription(wanted, now=tx.now())


async def _has_missed_event(tx: Transaction, webhook: Webhook, event_name: str, *, since: datetime) -> bool:
    lapsed_seq = await tx.event_log.last_seq_before(webhook.principal, since)
    demand = await tx.event_demands.get(webhook.principal, event_name, webhook.topic or "")
    if demand is not None and demand.gap_seq > lapsed_seq:
        return True  # no client demanded the upstream's events for a time, or it has lost some
    where = EventFilter(call_id=webhook.call_id)
    events = await tx.events.list_page(webhook.principal, lapsed_seq, where, limit=MISSED_EVENTS_VISITED_MAX)
    if events.next_position is not None:
        return True
    return any(matches_event(webhook, event, now=tx.confirmed_now()) for event in events)
