"""Replays: sending again what was sent before. The stored bodies go once more, each under its own webhook-id.

What is still being delivered is left alone, so asking twice sends nothing twice:

    log      delivered     dead     pending      the latest generation of each event for this webhook
    replay       2           2                   a new generation, one higher
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, Protocol

from ringback.domain.cursor import Place, decode_place, encode_place
from ringback.domain.delivery import OPEN, Delivery
from ringback.domain.errors import InvalidCursor, InvalidRequest, WebhookNotActive
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.webhook import Webhook
from ringback.notifier.on_demand import OnDemand
from ringback.notifier.places import knows_place, place_at
from ringback.services.deliveries import own_delivery
from ringback.services.lifecycle import Lifecycle
from ringback.services.quotas import QuotaKeeper
from ringback.services.webhook_rules import own_webhook, require_enabled

REPLAYED_MAX: Final = 10_000
"""By one request: as many as may be held for one webhook."""
STEP: Final = 200
"""Looked at in one transaction: it holds the one writer for milliseconds, where a whole replay would take a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFrom:
    """What to send again: one of these three."""

    since: datetime | None = None
    """What happened from then on."""
    cursor: str | None = None
    """What came after this place in the event log."""
    dead: bool = False
    """What was given up, and not sent again since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    replayed: int
    still_open: int
    """Left alone, because they are being delivered anyway."""
    more: bool
    """Whether the request reached its bound before the end."""
    cursor: str | None
    """Where to go on then. None for what was given up: asking again goes on by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Batch:
    ended: Sequence[Delivery]
    still_open: int
    rest: "_Source | None"


class _Source(Protocol):
    """Where a replay takes deliveries from, and how far it has come."""

    @property
    def cursor(self) -> str | None: ...

    async def take(self, tx: Transaction, webhook: Webhook, *, limit: int) -> _Batch:
        """The next ones, and the source of those after them."""
        ...


@dataclass(frozen=True, slots=True)
class _Log:
    """The log from a place on. What was never to be delivered to this webhook is no delivery, and stays none."""

    place: Place

    @property
    def cursor(self) -> str:
        return encode_place(self.place)

    async def take(self, tx: Transaction, webhook: Webhook, *, limit: int) -> _Batch:
        where = EventFilter(call_id=webhook.call_id, client_session_id=webhook.client_session_id)
        events = await tx.events.page(webhook.principal, self.place.seq, where, limit=limit)
        latest = await tx.delivery_lanes.latest(webhook.id, [event.id for event in events])
        ended = [delivery for delivery in latest if delivery.state not in OPEN]
        reached = events.next_place
        rest = None if reached is None else _Log(await place_at(tx, webhook.principal, reached))
        return _Batch(ended=ended, still_open=len(latest) - len(ended), rest=rest)


@dataclass(frozen=True, slots=True)
class _Dead:
    """What was given up. Whatever is replayed drops out of it, so another request may take it from its beginning."""

    after: str = ""
    cursor: None = None

    async def take(self, tx: Transaction, webhook: Webhook, *, limit: int) -> _Batch:
        dead = await tx.delivery_lanes.dead(webhook.id, limit=limit, after=self.after)
        return _Batch(ended=dead, still_open=0, rest=None if dead.next_place is None else _Dead(dead.next_place))


class Replays:
    def __init__(self, *, store: Store, on_demand: OnDemand, quotas: QuotaKeeper, lifecycle: Lifecycle) -> None:
        self._store = store
        self._on_demand = on_demand
        self._quotas = quotas
        self._lifecycle = lifecycle

    async def replay(self, caller: Caller, webhook_id: str, wanted: ReplayFrom) -> Replayed:
        """Send again what one webhook was to hear, at most `REPLAYED_MAX` of it.

        In steps, each a transaction of its own: whoever is cut off in the middle asks again, and the rest goes out.
        """
        self._begin(caller)
        source = await self._store.read(lambda tx: _source(tx, caller.principal, webhook_id, wanted))
        replayed = still_open = 0
        while source is not None and replayed < REPLAYED_MAX:
            limit = min(STEP, REPLAYED_MAX - replayed)
            batch = await self._store.write(partial(self._step, caller.principal, webhook_id, source, limit))
            replayed += len(batch.ended)
            still_open += batch.still_open
            source = batch.rest
        return Replayed(
            replayed=replayed,
            still_open=still_open,
            more=source is not None,
            cursor=None if source is None else source.cursor,
        )

    async def redeliver(self, caller: Caller, delivery_id: str) -> Delivery:
        """Send one delivery again; if it is on its way already, that one."""
        self._begin(caller)

        async def redeliver(tx: Transaction) -> Delivery:
            delivery = await own_delivery(tx, caller.principal, delivery_id)
            webhook = await tx.webhooks.get(delivery.webhook_id)
            if webhook is None:
                raise WebhookNotActive("The webhook of this delivery was removed. Register one, and give it a cursor.")
            require_enabled(webhook)
            if delivery.event_id is None:
                raise InvalidRequest("This delivery told of a gap. What was missed is there to poll: GET /v1/events")
            (latest,) = await tx.delivery_lanes.latest(webhook.id, [delivery.event_id])
            if latest.state in OPEN:
                return latest
            (renewed,) = await self._on_demand.again(tx, webhook, [latest])
            return renewed

        return await self._store.write(redeliver)

    def _begin(self, caller: Caller) -> None:
        caller.require(Scope.WEBHOOKS)
        self._lifecycle.require_open()
        self._quotas.count_start(caller.principal)

    async def _step(
        self, principal: Principal, webhook_id: str, source: _Source, limit: int, tx: Transaction
    ) -> _Batch:
        webhook = await own_webhook(tx, principal, webhook_id)
        require_enabled(webhook)
        batch = await source.take(tx, webhook, limit=limit)
        await self._on_demand.again(tx, webhook, batch.ended)
        return batch


async def _known_place(tx: Transaction, principal: Principal, cursor: str) -> Place:
    place = decode_place(cursor)
    if not await knows_place(tx, principal, place):
        raise InvalidCursor(
            "This cursor stands in an event log that is no more: an older backup of the database was restored. Say since when "
            "to send again instead: since."
        )
    return place


async def _source(tx: Transaction, principal: Principal, webhook_id: str, wanted: ReplayFrom) -> _Source:
    webhook = await own_webhook(tx, principal, webhook_id)
    match wanted:
        case ReplayFrom(since=datetime() as since, cursor=None, dead=False):
            return _Log(Place(await tx.event_places.last_before(webhook.principal, since)))
        case ReplayFrom(since=None, cursor=str() as cursor, dead=False):
            return _Log(await _known_place(tx, webhook.principal, cursor))
        case ReplayFrom(since=None, cursor=None, dead=True):
            return _Dead()
        case _:
            raise InvalidRequest("Say what to send again by one of these: since, cursor, or dead: true.")
