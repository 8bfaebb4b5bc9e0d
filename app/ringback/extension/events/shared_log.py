"""One log for all principals of a server: an event for everybody is stored once, however many subscribe.

A Ringback has a log for each principal. Here all events are in the log of one principal, `SERVER_PRINCIPAL`; webhooks, quotas
and proofs of URLs keep their own principals. So every cursor is a position of the same log, in each delivery mode and for each
principal. `SharedLogStore` wraps the store of the embedded Ringback:

    tx.events, tx.event_log         each principal's log is the server's
    tx.event_types                  what the author has declared
    tx.webhooks.find_candidates     the subscriptions of all principals that match an event (subscription_index)

`Audience` decides who gets the event: its principal, and the arguments of the subscription.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeVar, cast

from ringback.domain.cursor import Page
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter, EventLogRows, EventRows, LogBounds, ReservedPlaces
from ringback.domain.event_subscriptions import EventSubscription
from ringback.domain.event_types import PublishedEventType
from ringback.domain.ids import EventId, WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, matches_event
from ringback.extension.events.event_types import DeclaredEventType, DeclaredEventTypes
from ringback.extension.events.principals import audience_of
from ringback.extension.events.subscription_index import SubscriptionIndex
from ringback.storage.log_appends import StepwiseLogAppends
from ringback.storage.store_wrapper import StoreWrapper

T = TypeVar("T")

SERVER_PRINCIPAL: Final = Principal("server")
"""Whose log has all events. It owns nothing else, so a caller of this name sees no more than others."""
SUBSCRIPTIONS_OF_TYPE_MAX: Final = 100_000
"""Live subscriptions of one event type. Far more than one process can deliver to."""
_COMPARED_AT_ONCE: Final = 256
"""Subscriptions compared with an event between two turns of the event loop: an author's rule takes some microseconds."""


@dataclass(slots=True)
class Audience:
    """Who gets an event of the log: by its principal, and by the arguments that a client asks with."""

    types: DeclaredEventTypes
    index: SubscriptionIndex

    def matches(self, principal: str | None, arguments: Mapping[str, Any], event: Event) -> bool:
        declared = self.types.get(event.name)
        may_see = event.client_session_id is None or event.client_session_id == audience_of(principal)
        return declared is not None and may_see and declared.matches_arguments(arguments, event.data)

    async def select_webhooks(self, tx: Transaction, event: Event, candidates: Sequence[Webhook]) -> Sequence[Webhook]:
        """Implements `notifier.fan_out.SelectWebhooks`."""
        await self.load_subscriptions(tx, event.name)  # a catch-up goes on after a restart before anything is emitted
        return [webhook for webhook in candidates if self._accepts(tx, event, webhook)]

    def _accepts(self, tx: Transaction, event: Event, webhook: Webhook) -> bool:
        subscription = self.index.get(webhook.id)
        return (
            subscription is not None
            and matches_event(webhook, replace(event, principal=webhook.principal), now=tx.confirmed_now())
            and self.matches(webhook.principal, subscription.arguments, event)
        )

    async def find_subscriptions(self, tx: Transaction, event: Event) -> Sequence[WebhookId]:
        """The subscriptions that get the event, as the index knows them."""
        await self.load_subscriptions(tx, event.name)
        declared = self.types.get(event.name)
        found: list[WebhookId] = []
        for number, subscription in enumerate(self.index.find_candidates(event), 1):
            if number % _COMPARED_AT_ONCE == 0:
                await tx.pause()
            if declared is not None and declared.matches_arguments(subscription.arguments, event.data):
                found.append(subscription.id)
        return found

    async def load_subscriptions(self, tx: Transaction, event_name: str) -> None:
        """Read all subscriptions of the type, once in each process."""
        if event_name in self.index.loaded or self.types.get(event_name) is None:
            return
        for subscription_id in await tx.subscriptions.list_of_event(event_name, limit=SUBSCRIPTIONS_OF_TYPE_MAX):
            if (subscription := await tx.subscriptions.get(subscription_id)) is not None:
                self.index.put_subscription(subscription, now=tx.confirmed_now())
        self.index.loaded.add(event_name)


class SharedLogStore(StoreWrapper):
    def __init__(self, store: Store, audience: Audience) -> None:
        super().__init__(store)
        self._audience = audience

    def _wrap_work(self, work: Callable[[Transaction], Awaitable[T]]) -> Callable[[Transaction], Awaitable[T]]:
        return lambda tx: work(cast("Transaction", _SharedLogTransaction(tx, self._audience)))


class _SharedLogTransaction:
    """The transaction, with rows of events and webhooks that know one log."""

    def __init__(self, tx: Transaction, audience: Audience) -> None:
        self._tx = tx
        self.event_types = _DeclaredTypes(audience.types, tx.now())
        self.subscriptions = _IndexedSubscriptions(tx, audience.index)
        self.events = _ServerEvents(tx.events)
        self.event_log = _ServerPositions(tx.event_log)
        self.webhooks = _SubscribedWebhooks(tx, audience)
        self.log_appends = StepwiseLogAppends(cast("Transaction", self))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


class _ServerEvents:
    """Implements `domain.event_rows.EventRows`. An event that is read for a principal looks as if it were its own."""

    def __init__(self, rows: EventRows) -> None:
        self._rows = rows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    async def reserve_seqs(self, _principal: Principal, count: int) -> int:
        return await self._rows.reserve_seqs(SERVER_PRINCIPAL, count)

    async def reserve_places(self, _principal: Principal, count: int) -> ReservedPlaces:
        return await self._rows.reserve_places(SERVER_PRINCIPAL, count)

    async def insert(self, events: Sequence[Event]) -> None:
        await self._rows.insert([replace(event, principal=SERVER_PRINCIPAL) for event in events])

    async def find_known_ids(
        self, _principal: Principal, event_ids: Collection[EventId], *, topic: str | None
    ) -> Collection[EventId]:
        return await self._rows.find_known_ids(SERVER_PRINCIPAL, event_ids, topic=topic)

    async def list_after(self, principal: Principal, seq: int, where: EventFilter, *, limit: int) -> Sequence[Event]:
        found = await self._rows.list_after(SERVER_PRINCIPAL, seq, where, limit=limit)
        return [replace(event, principal=principal) for event in found]

    async def list_page(self, principal: Principal, seq: int, where: EventFilter, *, limit: int) -> Page[Event, int]:
        page = await self._rows.list_page(SERVER_PRINCIPAL, seq, where, limit=limit)
        return Page([replace(event, principal=principal) for event in page], next_position=page.next_position)


class _ServerPositions:
    """Implements `domain.event_rows.EventLogRows`."""

    def __init__(self, rows: EventLogRows) -> None:
        self._rows = rows

    async def get_head(self, _principal: Principal, *, lock: bool = False) -> int:
        return await self._rows.get_head(SERVER_PRINCIPAL, lock=lock)

    async def get_retention_floor(self, _principal: Principal) -> int:
        return await self._rows.get_retention_floor(SERVER_PRINCIPAL)

    async def get_bounds(self, _principal: Principal) -> LogBounds:
        return await self._rows.get_bounds(SERVER_PRINCIPAL)

    async def get_event_ids(self, _principal: Principal, seqs: Collection[int]) -> Mapping[int, EventId]:
        return await self._rows.get_event_ids(SERVER_PRINCIPAL, seqs)

    async def get_event_id(self, _principal: Principal, seq: int) -> EventId | None:
        return await self._rows.get_event_id(SERVER_PRINCIPAL, seq)

    async def last_seq_before(self, _principal: Principal, instant: datetime) -> int:
        return await self._rows.last_seq_before(SERVER_PRINCIPAL, instant)


class _DeclaredTypes:
    """Implements `domain.event_types.EventTypeRows`: what the author declares, for each principal. Nothing is stored."""

    def __init__(self, types: DeclaredEventTypes, now: datetime) -> None:
        self._types = types
        self._now = now

    async def get(self, principal: Principal, name: str) -> PublishedEventType | None:
        declared = self._types.get(name)
        return None if declared is None else self._describe(principal, declared)

    async def list_of_principal(self, principal: Principal) -> Sequence[PublishedEventType]:
        return [self._describe(principal, each) for each in self._types]

    async def save(self, event_type: PublishedEventType) -> None:
        """Only declared types are published, and these need no row."""

    async def remove(self, _principal: Principal, _name: str) -> bool:
        return False

    def _describe(self, principal: Principal, declared: DeclaredEventType) -> PublishedEventType:
        return PublishedEventType(
            principal=principal,
            name=declared.name,
            description=declared.description,
            payload_schema=declared.payload_schema,
            created_at=self._now,
            updated_at=self._now,
        )


class _IndexedSubscriptions:
    """Rows of subscriptions. What is saved is in the index at once: a later unit of the same commit may match it."""

    def __init__(self, tx: Transaction, index: SubscriptionIndex) -> None:
        self._tx = tx
        self._index = index

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx.subscriptions, name)

    async def save(self, subscription: EventSubscription) -> None:
        self._tx.on_rollback(self._index.reset)
        await self._tx.subscriptions.save(subscription)
        self._index.put_subscription(subscription, now=self._tx.confirmed_now())


class _SubscribedWebhooks:
    """Webhooks, of which those that subscribe to an event are found for all principals."""

    def __init__(self, tx: Transaction, audience: Audience) -> None:
        self._tx = tx
        self._audience = audience

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx.webhooks, name)

    async def find_candidates(self, events: Sequence[Event], *, catching_up: bool) -> Sequence[Sequence[Webhook]]:
        return [await self._find_subscribed(event, catching_up=catching_up) for event in events]

    async def _find_subscribed(self, event: Event, *, catching_up: bool) -> Sequence[Webhook]:
        ids = await self._audience.find_subscriptions(self._tx, event)
        webhooks = await self._tx.webhooks.get_many(ids) if ids else list[Webhook]()
        self._discard_ended(ids, webhooks)
        return webhooks if catching_up else await self._leave_out_catching_up(webhooks)

    def _discard_ended(self, ids: Collection[WebhookId], webhooks: Collection[Webhook]) -> None:
        """The janitor removes a webhook that has expired; its subscription ends with it."""
        if ended := set(ids) - {webhook.id for webhook in webhooks}:
            self._tx.on_rollback(self._audience.index.reset)
            for subscription_id in ended:
                self._audience.index.discard(subscription_id)

    async def _leave_out_catching_up(self, webhooks: Collection[Webhook]) -> Sequence[Webhook]:
        """A webhook that catches up reads these events itself, later."""
        if await self._tx.catch_ups.find_next(after="") is None:
            return list(webhooks)
        return [each for each in webhooks if await self._tx.catch_ups.get(each.id) is None]
