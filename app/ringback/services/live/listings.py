"""What a live list shows: its first page, read as the page itself reads it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from ringback.domain.call import Call
from ringback.domain.call_histories import CallMarks
from ringback.domain.call_rows import CallFilter
from ringback.domain.cursor import CursorList, encode_event_time, encode_next_cursor
from ringback.domain.delivery import Delivery
from ringback.domain.delivery_rows import DeliveryFilter, UndeliveredCounts
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter
from ringback.domain.ids import DeliveryId, WebhookId
from ringback.domain.insights import SessionCounts
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, WebhookHealth, WebhookState
from ringback.services.calls.call_histories import read_marks
from ringback.services.deliveries.deliveries import UNDELIVERED_COUNTED_MAX, find_latest_generations
from ringback.services.events.events import LAST_SEQ, read_own_latest
from ringback.services.insights.sessions import SESSION_CALLS_COUNTED_MAX
from ringback.services.scans import Scan

Shown_co = TypeVar("Shown_co", covariant=True)


class LiveListing(Protocol[Shown_co]):
    """Hashable: equal listings of one principal are one list."""

    async def read(self, scan: Scan, principal: Principal | None) -> Shown_co:
        """What the list shows now, as a value that can be compared. None: of all principals."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedCalls:
    calls: Sequence[Call]
    older: str | None
    """The cursor of older ones; None if these are all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallListing:
    """The newest calls that match."""

    call_filter: CallFilter
    limit: int

    async def read(self, scan: Scan, principal: Principal | None) -> ListedCalls:
        return await scan(lambda tx: self._read(tx, principal))

    async def _read(self, tx: Transaction, principal: Principal | None) -> ListedCalls:
        page = await tx.calls.list_page(principal, self.call_filter, position=None, limit=self.limit)
        return ListedCalls(calls=list(page), older=encode_next_cursor(CursorList.CALLS, page))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDeliveries:
    deliveries: Sequence[Delivery]
    latest: Mapping[DeliveryId, Delivery]
    """The latest generation of those that were sent again."""
    older: str | None
    """The cursor of older ones; None if these are all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryListing:
    """The newest deliveries that match."""

    delivery_filter: DeliveryFilter
    limit: int

    async def read(self, scan: Scan, principal: Principal | None) -> ListedDeliveries:
        return await scan(lambda tx: self._read(tx, principal))

    async def _read(self, tx: Transaction, principal: Principal | None) -> ListedDeliveries:
        page = await tx.deliveries.list_page(principal, self.delivery_filter, position=None, limit=self.limit)
        latest = await find_latest_generations(tx, list(page))
        older = encode_next_cursor(CursorList.DELIVERIES, page)
        return ListedDeliveries(deliveries=list(page), latest=latest, older=older)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedWebhooks:
    webhooks: Sequence[Webhook]
    counts: Mapping[WebhookId, UndeliveredCounts]
    older: str | None
    """The cursor of older ones; None if these are all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookListing:
    """The newest webhooks that match, with what was not delivered to them."""

    health: WebhookHealth | None
    state: WebhookState | None
    limit: int

    async def read(self, scan: Scan, principal: Principal | None) -> ListedWebhooks:
        return await scan(lambda tx: self._read(tx, principal))

    async def _read(self, tx: Transaction, principal: Principal | None) -> ListedWebhooks:
        page = await tx.webhooks.list_page(principal, self.health, state=self.state, position=None, limit=self.limit)
        counts = await tx.deliveries.count_undelivered([each.id for each in page], limit=UNDELIVERED_COUNTED_MAX)
        older = encode_next_cursor(CursorList.WEBHOOKS, page)
        return ListedWebhooks(webhooks=list(page), counts=counts, older=older)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedEvents:
    events: Sequence[Event]
    older: str | None
    """The cursor of older ones; None if these are all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventListing:
    """The newest events that match."""

    event_filter: EventFilter
    limit: int

    async def read(self, scan: Scan, principal: Principal | None) -> ListedEvents:
        return await scan(lambda tx: self._read(tx, principal))

    async def _read(self, tx: Transaction, principal: Principal | None) -> ListedEvents:
        if principal is not None:
            own = await read_own_latest(tx, principal, self.event_filter, before=LAST_SEQ, limit=self.limit)
            return ListedEvents(events=list(own), older=own.next_position)
        page = await tx.events.list_latest(self.event_filter, position=None, limit=self.limit)
        older = None if page.next_position is None else encode_event_time(page.next_position)
        return ListedEvents(events=list(page), older=older)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionContent:
    calls: Sequence[CallMarks]
    """Newest first."""
    counts: SessionCounts | None
    """None without calls, and for the calls of all principals that use the session's name."""
    older: str | None
    """The cursor of older ones; None if these are all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionListing:
    """The newest calls of one client session, with their deliveries and resumes."""

    client_session_id: str
    limit: int

    async def read(self, scan: Scan, principal: Principal | None) -> SessionContent:
        return await scan(lambda tx: self._read(tx, principal))

    async def _read(self, tx: Transaction, principal: Principal | None) -> SessionContent:
        where = CallFilter(client_session_id=self.client_session_id)
        page = await tx.calls.list_page(principal, where, position=None, limit=self.limit)
        counts = None
        if principal is not None:
            counts = await tx.client_sessions.count_calls(
                principal, self.client_session_id, limit=SESSION_CALLS_COUNTED_MAX
            )
        older = encode_next_cursor(CursorList.CALLS, page)
        return SessionContent(calls=await read_marks(tx, list(page)), counts=counts, older=older)
