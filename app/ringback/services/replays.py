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

from ringback.domain.cursor import LogPosition, decode_log_position, encode_log_position
from ringback.domain.delivery import OPEN_STATES, Delivery
from ringback.domain.errors import InvalidCursor, InvalidRequest, WebhookNotActive
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.webhook import Webhook
from ringback.notifier.log_positions import log_contains_position, read_log_position
from ringback.notifier.requested_deliveries import RequestedDeliveries
from ringback.services.deliveries import get_own_delivery
from ringback.services.lifecycle import Lifecycle
from ringback.services.quotas import QuotaEnforcer
from ringback.services.webhook_checks import get_own_webhook, require_enabled

REPLAY_DELIVERIES_MAX: Final = 10_000
"""By one request: as many as may be held for one webhook."""
REPLAY_BATCH_SIZE: Final = 200
"""Looked at in one transaction: it holds the one writer for milliseconds, where a whole replay would take a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """What to send again: one of these three."""

    since: datetime | None = None
    """What happened from then on."""
    cursor: str | None = None
    """What came after this place in the event log."""
    only_dead: bool = False
    """What was given up, and not sent again since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    replayed: int
    still_open: int
    """Left alone, because they are being delivered anyway."""
    has_more: bool
    """Whether the request reached its bound before the end."""
    cursor: str | None
    """Where to go on then. None for what was given up: asking again goes on by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReplayBatch:
    finished: Sequence[Delivery]
    still_open: int
    next_source: "_ReplaySource | None"


class _ReplaySource(Protocol):
    """Where a replay takes deliveries from, and how far it has come."""

    @property
    def cursor(self) -> str | None: ...

    async def read_batch(self, tx: Transaction, webhook: Webhook, *, limit: int) -> _ReplayBatch:
        """The next ones, and the source of those after them."""
        ...


@dataclass(frozen=True, slots=True)
class _EventLogSource:
    """The log from a place on. What was never to be delivered to this webhook is no delivery, and stays none."""

    position: LogPosition

    @property
    def cursor(self) -> str:
        return encode_log_position(self.position)

    async def read_batch(self, tx: Transaction, webhook: Webhook, *, limit: int) -> _ReplayBatch:
        event_filter = EventFilter(call_id=webhook.call_id, client_session_id=webhook.client_session_id)
        events = await tx.events.list_page(webhook.principal, self.position.seq, event_filter, limit=limit)
        latest = await tx.webhook_deliveries.latest_by_event(webhook.id, [event.id for event in events])
        ended = [delivery for delivery in latest if delivery.state not in OPEN_STATES]
        reached = events.next_position
        next_source = (
            None if reached is None else _EventLogSource(await read_log_position(tx, webhook.principal, reached))
        )
        return _ReplayBatch(finished=ended, still_open=len(latest) - len(ended), next_source=next_source)


@dataclass(frozen=True, slots=True)
class _DeadDeliverySource:
    """What was given up. Whatever is replayed drops out of it, so another request may take it from its beginning."""

    after: str = ""
    cursor: None = None

    async def read_batch(self, tx: Transaction, webhook: Webhook, *, limit: int) -> _ReplayBatch:
        dead = await tx.webhook_deliveries.list_dead(webhook.id, limit=limit, after=self.after)
        return _ReplayBatch(
            finished=dead,
            still_open=0,
            next_source=None if dead.next_position is None else _DeadDeliverySource(dead.next_position),
        )


class DeliveryReplays:
    def __init__(
        self, *, store: Store, requested_deliveries: RequestedDeliveries, quotas: QuotaEnforcer, lifecycle: Lifecycle
    ) -> None:
        self._store = store
        self._requested_deliveries = requested_deliveries
        self._quotas = quotas
        self._lifecycle = lifecycle

    async def replay_webhook(self, caller: Caller, webhook_id: str, request: ReplayRequest) -> ReplayResult:
        """Send again what one webhook was to hear, at most `REPLAYED_MAX` of it.

        In steps, each a transaction of its own: whoever is cut off in the middle asks again, and the rest goes out.
        """
        self._check_request(caller)
        source = await self._store.read(lambda tx: _select_source(tx, caller.principal, webhook_id, request))
        replayed = still_open = 0
        while source is not None and replayed < REPLAY_DELIVERIES_MAX:
            limit = min(REPLAY_BATCH_SIZE, REPLAY_DELIVERIES_MAX - replayed)
            batch = await self._store.write(partial(self._replay_batch, caller.principal, webhook_id, source, limit))
            replayed += len(batch.finished)
            still_open += batch.still_open
            source = batch.next_source
        return ReplayResult(
            replayed=replayed,
            still_open=still_open,
            has_more=source is not None,
            cursor=None if source is None else source.cursor,
        )

    async def redeliver_delivery(self, caller: Caller, delivery_id: str) -> Delivery:
        """Send one delivery again; if it is on its way already, that one."""
        self._check_request(caller)

        async def redeliver(tx: Transaction) -> Delivery:
            delivery = await get_own_delivery(tx, caller.principal, delivery_id)
            webhook = await tx.webhooks.get(delivery.webhook_id)
            if webhook is None:
                raise WebhookNotActive("The webhook of this delivery was removed. Register one, and give it a cursor.")
            require_enabled(webhook)
            if delivery.event_id is None:
                raise InvalidRequest("This delivery told of a gap. What was missed is there to poll: GET /v1/events")
            (latest,) = await tx.webhook_deliveries.latest_by_event(webhook.id, [delivery.event_id])
            if latest.state in OPEN_STATES:
                return latest
            (replayed,) = await self._requested_deliveries.insert_replays(tx, webhook, [latest])
            return replayed

        return await self._store.write(redeliver)

    def _check_request(self, caller: Caller) -> None:
        caller.require_scope(Scope.WEBHOOKS)
        self._lifecycle.require_running()
        self._quotas.acquire_start(caller.principal)

    async def _replay_batch(
        self, principal: Principal, webhook_id: str, source: _ReplaySource, limit: int, tx: Transaction
    ) -> _ReplayBatch:
        webhook = await get_own_webhook(tx, principal, webhook_id)
        require_enabled(webhook)
        batch = await source.read_batch(tx, webhook, limit=limit)
        await self._requested_deliveries.insert_replays(tx, webhook, batch.finished)
        return batch


async def _require_known_position(tx: Transaction, principal: Principal, cursor: str) -> LogPosition:
    place = decode_log_position(cursor)
    if not await log_contains_position(tx, principal, place):
        raise InvalidCursor(
            "This cursor stands in an event log that is no more: an older backup of the database was restored. Say since when "
            "to send again instead: since."
        )
    return place


async def _select_source(
    tx: Transaction, principal: Principal, webhook_id: str, request: ReplayRequest
) -> _ReplaySource:
    webhook = await get_own_webhook(tx, principal, webhook_id)
    match request:
        case ReplayRequest(since=datetime() as since, cursor=None, only_dead=False):
            return _EventLogSource(LogPosition(await tx.event_log.last_seq_before(webhook.principal, since)))
        case ReplayRequest(since=None, cursor=str() as cursor, only_dead=False):
            return _EventLogSource(await _require_known_position(tx, webhook.principal, cursor))
        case ReplayRequest(since=None, cursor=None, only_dead=True):
            return _DeadDeliverySource()
        case _:
            raise InvalidRequest("Say what to send again by one of these: since, cursor, or dead: true.")
