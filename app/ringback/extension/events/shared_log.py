"""One log for all principals of a server: an event for everybody is stored once, however many subscribe.

A Ringback has a log for each principal. Here all events are in the log of one principal, `SERVER_PRINCIPAL`; webhooks, quotas
and proofs of URLs keep their own principals. So every cursor is a position of the same log, in each delivery mode and for each
principal. `SharedLogStore` wraps the store of the embedded Ringback:

    tx.events, tx.event_log         each principal's log is the server's
    tx.event_types                  what the author has declared
    tx.webhooks.find_candidates     the subscriptions of all principals to this event type

`Audience.select_webhooks` then decides who gets the event: its principal, and the arguments of the subscription.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, TypeVar, cast

from ringback.domain.cursor import Page
from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter, EventLogRows, EventRows, ReservedPlaces
from ringback.domain.event_types import PublishedEventType
from ringback.domain.ids import EventId, WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.signals import Signals
from ringback.domain.webhook import Webhook, matches_event
from ringback.extension.events.event_types import EventType, EventTypes

T = TypeVar("T")

SERVER_PRINCIPAL: Final = Principal("server")
"""Whose log has all events. It owns nothing else, so a caller of this name sees no more than others."""
SUBSCRIPTIONS_OF_TYPE_MAX: Final = 100_000
"""Live subscriptions of one event type that an event is compared with. Far more than one process can deliver to."""
KNOWN_ARGUMENTS_MAX: Final = 10_000
"""Arguments of subscriptions kept in memory, some 300 bytes each."""
_COMPARED_AT_ONCE: Final = 64
"""Subscriptions compared with an event between two turns of the event loop: an author's `matches` takes some microseconds."""


def audience_of(principal: str | None) -> str | None:
    """What the log stores of the principal that may see an event: a digest. None for everybody."""
    return None if principal is None else hashlib.sha256(principal.encode()).hexdigest()[:32]


@dataclass(slots=True)
class Audience:
    """Who gets an event of the log: by its principal, and by the arguments that a client asks with."""

    types: EventTypes
    _arguments: OrderedDict[WebhookId, Mapping[str, Any]] = field(
        default_factory=OrderedDict[WebhookId, Mapping[str, Any]]
    )
    """An id is a digest of its arguments, among others, so they never change."""

    def may_see(self, principal: str | None, event: Event) -> bool:
        return event.client_session_id is None or event.client_session_id == audience_of(principal)

    def matches(self, principal: str | None, arguments: Mapping[str, Any], event: Event) -> bool:
        declared = self.types.get(event.name)
        return (
            declared is not None
            and self.may_see(principal, event)
            and declared.matches_arguments(arguments, event.data)
        )

    async def select_webhooks(self, tx: Transaction, event: Event, candidates: Sequence[Webhook]) -> Sequence[Webhook]:
        """Implements `notifier.fan_out.SelectWebhooks`."""
        selected: list[Webhook] = []
        for number, webhook in enumerate(candidates, 1):
            if number % _COMPARED_AT_ONCE == 0:
                await tx.pause()
            own_event = replace(event, principal=webhook.principal)
            if matches_event(webhook, own_event, now=tx.now()):
                arguments = await self._read_arguments(tx, webhook.id)
                if arguments is not None and self.matches(webhook.principal, arguments, event):
                    selected.append(webhook)
        return selected

    async def _read_arguments(self, tx: Transaction, webhook_id: WebhookId) -> Mapping[str, Any] | None:
        """None for a subscription that has ended."""
        if (known := self._arguments.get(webhook_id)) is not None:
            self._arguments.move_to_end(webhook_id)
            return known
        subscription = await tx.subscriptions.get(webhook_id)
        if subscription is None or subscription.ended_at is not None:
            return None
        arguments = cast("dict[str, Any]", json.loads(subscription.arguments))
        self._arguments[webhook_id] = arguments
        if len(self._arguments) > KNOWN_ARGUMENTS_MAX:
            self._arguments.popitem(last=False)
        return arguments


class SharedLogStore:
    """Implements `domain.ports.Store` around another one."""

    def __init__(self, store: Store, types: EventTypes) -> None:
        self._store = store
        self._types = types

    @property
    def signals(self) -> Signals:
        return self._store.signals

    @property
    def is_exclusive(self) -> bool:
        return self._store.is_exclusive

    async def read(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._store.read(self._share_log(work))

    async def scan(self, principal: Principal | None, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._store.scan(principal, self._share_log(work))

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._store.write(self._share_log(work))

    async def write_for(self, principal: Principal, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._store.write_for(principal, self._share_log(work))

    async def write_heartbeat(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._store.write_heartbeat(self._share_log(work))

    def _share_log(self, work: Callable[[Transaction], Awaitable[T]]) -> Callable[[Transaction], Awaitable[T]]:
        return lambda tx: work(cast("Transaction", _SharedLogTransaction(tx, self._types)))


class _SharedLogTransaction:
    """The transaction, with rows of events and webhooks that know one log."""

    def __init__(self, tx: Transaction, types: EventTypes) -> None:
        self._tx = tx
        self.event_types = _DeclaredTypes(types, tx.now())
        self.events = _ServerEvents(tx.events)
        self.event_log = _ServerPositions(tx.event_log)
        self.webhooks = _SubscribedWebhooks(tx)

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

    async def get_event_ids(self, _principal: Principal, seqs: Collection[int]) -> Mapping[int, EventId]:
        return await self._rows.get_event_ids(SERVER_PRINCIPAL, seqs)

    async def get_event_id(self, _principal: Principal, seq: int) -> EventId | None:
        return await self._rows.get_event_id(SERVER_PRINCIPAL, seq)

    async def last_seq_before(self, _principal: Principal, instant: datetime) -> int:
        return await self._rows.last_seq_before(SERVER_PRINCIPAL, instant)


class _DeclaredTypes:
    """Implements `domain.event_types.EventTypeRows`: what the author declares, for each principal. Nothing is stored."""

    def __init__(self, types: EventTypes, now: datetime) -> None:
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

    def _describe(self, principal: Principal, declared: EventType) -> PublishedEventType:
        return PublishedEventType(
            principal=principal,
            name=declared.name,
            description=declared.description,
            payload_schema=declared.payload_schema,
            created_at=self._now,
            updated_at=self._now,
        )


class _SubscribedWebhooks:
    """Webhooks, of which those that subscribe to an event type are found for all principals."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx.webhooks, name)

    async def find_candidates(self, events: Sequence[Event], *, catching_up: bool) -> Sequence[Sequence[Webhook]]:
        found = {name: await self._find_subscribed(name, catching_up=catching_up) for name in {e.name for e in events}}
        return [found[event.name] for event in events]

    async def _find_subscribed(self, name: str, *, catching_up: bool) -> Sequence[Webhook]:
        ids = await self._tx.subscriptions.list_of_event(name, limit=SUBSCRIPTIONS_OF_TYPE_MAX)
        webhooks = await self._tx.webhooks.get_many(ids)
        return webhooks if catching_up else await self._leave_out_catching_up(webhooks)

    async def _leave_out_catching_up(self, webhooks: Collection[Webhook]) -> Sequence[Webhook]:
        """A webhook that catches up reads these events itself, later."""
        if await self._tx.catch_ups.find_next(after="") is None:
            return list(webhooks)
        return [each for each in webhooks if await self._tx.catch_ups.get(each.id) is None]
