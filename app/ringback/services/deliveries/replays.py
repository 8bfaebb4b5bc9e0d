"""Replays: send deliveries again, with the stored bodies and the same webhook-ids.

A replay also makes the webhook's other pending deliveries due now (`attempt_scheduling`).

Open deliveries are skipped, so that a repeated request sends nothing twice. So are those that have ended since the request:
they were open, or the request itself has sent them.

    log      delivered     dead     pending      the latest generation of each event for this webhook
    replay       2           2                   a new generation, one higher
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Final, Protocol

from ringback.domain.cursor import LogPosition, decode_log_position, encode_log_position
from ringback.domain.delivery import OPEN_STATES, Delivery
from ringback.domain.errors import ContentUnreadable, InvalidCursor, InvalidRequest, NotFound, WebhookNotActive
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Principal, Scope
from ringback.domain.webhook import Webhook, WebhookOrigin
from ringback.notifier.log_positions import log_contains_position, read_log_position
from ringback.notifier.requested_deliveries import RequestedDeliveries
from ringback.services.audit import record_own_change
from ringback.services.deliveries.deliveries import get_own_delivery
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.services.webhooks.attempt_scheduling import AttemptScheduler, OpenDeliveries
from ringback.services.webhooks.webhook_checks import get_own_webhook, require_enabled
from ringback.services.webhooks.webhooks import RequestedDelivery

REPLAY_DELIVERIES_MAX: Final = 10_000
"""Deliveries of one request: as many as one webhook can hold."""
REPLAY_BATCH_SIZE: Final = 100
"""Deliveries per transaction: ten milliseconds of the only writer, with the bodies sealed anew, where a whole replay would
take a second."""
REPLAY_BYTES_MAX: Final = 1024 * 1024
"""Bodies per transaction: another ten milliseconds. A hundred bodies may have 25 MB."""
REPLAY_BATCHES_MAX: Final = 200
"""Batches of one request, most of which may find no delivery: a log has millions of events that the webhook never matched. A
batch and the pause after it take some 20 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """Selects the deliveries to send again; exactly one of `since`, `cursor` and `only_dead` is set."""

    since: datetime | None = None
    """Events from this time on."""
    cursor: str | None = None
    """Events after this place in the event log."""
    only_dead: bool = False
    """Dead deliveries that have no newer generation."""
    dry_run: bool = False
    """Count the deliveries and change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    replayed: int
    still_open: int
    """Deliveries that were skipped because they are open."""
    has_more: bool
    """Whether the request reached its limit before the end."""
    cursor: str | None
    """Where the next request continues. None for dead deliveries: a repeated request continues by itself."""
    deliveries: OpenDeliveries


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReplayBatch:
    finished: Sequence[Delivery]
    """To be sent again, in the order of the source. Without those whose body cannot be read, once they are."""
    still_open: Sequence[Delivery]
    next_source: "_ReplaySource | None"


class _ReplaySource(Protocol):
    """The deliveries of a replay, from the current position on."""

    @property
    def cursor(self) -> str | None: ...

    async def read_batch(self, tx: Transaction, webhook: Webhook, *, limit: int) -> _ReplayBatch:
        """Return the next deliveries, without their bodies, and the source of the rest."""
        ...

    async def after(self, tx: Transaction, last: Delivery) -> "_ReplaySource":
        """The source of what follows this delivery."""
        ...


@dataclass(frozen=True, slots=True)
class _EventLogSource:
    """The log from a position on. Events without a delivery to this webhook get none."""

    position: LogPosition
    requested_at: datetime

    @property
    def cursor(self) -> str:
        return encode_log_position(self.position)

    async def read_batch(self, tx: Transaction, webhook: Webhook, *, limit: int) -> _ReplayBatch:
        events = await tx.events.list_page(
            webhook.principal, self.position.seq, await _find_event_filter(tx, webhook), limit=limit
        )
        latest = await tx.webhook_deliveries.latest_by_event(webhook.id, [event.id for event in events])
        finished = [
            each
            for each in latest
            if each.state not in OPEN_STATES and not _has_ended_since(each, self.requested_at, now=tx.now())
        ]
        finished_ids = {each.id for each in finished}
        return _ReplayBatch(
            finished=finished,
            still_open=[each for each in latest if each.id not in finished_ids],
            next_source=(
                None
                if events.next_position is None
                else await self._move_to(tx, webhook.principal, events.next_position)
            ),
        )

    async def after(self, tx: Transaction, last: Delivery) -> "_ReplaySource":
        return await self._move_to(tx, last.principal, last.seq or 0)

    async def _move_to(self, tx: Transaction, principal: Principal, seq: int) -> "_EventLogSource":
        return replace(self, position=await read_log_position(tx, principal, seq))


async def _find_event_filter(tx: Transaction, webhook: Webhook) -> EventFilter:
    """Events that may have a delivery to this webhook. Calls of other sessions may have named a registered webhook."""
    if webhook.origin is not WebhookOrigin.CALL and await tx.call_webhooks.has_calls(webhook.id):
        return EventFilter(call_id=webhook.call_id)
    return EventFilter(call_id=webhook.call_id, client_session_id=webhook.client_session_id)


@dataclass(frozen=True, slots=True)
class _DeadDeliverySource:
    """Dead deliveries. A replayed delivery leaves this list, so the next request starts at its beginning."""

    requested_at: datetime
    last_id: str = ""
    cursor: None = None

    async def read_batch(self, tx: Transaction, webhook: Webhook, *, limit: int) -> _ReplayBatch:
        dead = await tx.webhook_deliveries.list_dead(webhook.id, limit=limit, after=self.last_id)
        return _ReplayBatch(
            finished=[each for each in dead if not _has_ended_since(each, self.requested_at, now=tx.now())],
            still_open=(),
            next_source=None if dead.next_position is None else replace(self, last_id=dead.next_position),
        )

    async def after(self, tx: Transaction, last: Delivery) -> "_ReplaySource":  # noqa: ARG002 - the names of the protocol
        return replace(self, last_id=last.id)


def _has_ended_since(delivery: Delivery, requested_at: datetime, *, now: datetime) -> bool:
    """An end that is ahead was written by a clock that was far ahead: it says nothing."""
    return delivery.finished_at is not None and requested_at < delivery.finished_at <= now


class DeliveryReplays:
    def __init__(
        self,
        *,
        store: Store,
        requested_deliveries: RequestedDeliveries,
        attempts: AttemptScheduler,
        quotas: QuotaEnforcer,
        lifecycle: Lifecycle,
    ) -> None:
        self._store = store
        self._attempts = attempts
        self._requested_deliveries = requested_deliveries
        self._quotas = quotas
        self._lifecycle = lifecycle

    async def replay_webhook(self, caller: Caller, webhook_id: str, request: ReplayRequest) -> ReplayResult:
        """Send deliveries of one webhook again, at most `REPLAY_DELIVERIES_MAX`, in at most `REPLAY_BATCHES_MAX` batches.

        Each batch is a transaction. After a lost connection, the client repeats the request and the rest is sent. A quota that
        is used up meanwhile ends the request before its next batch.
        """
        self._check_request(caller)
        webhook, source = await self._store.read(lambda tx: self._select_source(tx, caller, webhook_id, request))
        replay_batch = self._count_batch if request.dry_run else self._replay_batch
        run = self._store.scan if request.dry_run else self._store.write_for
        replayed = still_open = 0
        pace = self._quotas.pace_batches()
        for number in range(REPLAY_BATCHES_MAX):
            if source is None or replayed >= REPLAY_DELIVERIES_MAX:
                break
            limit = min(REPLAY_BATCH_SIZE, REPLAY_DELIVERIES_MAX - replayed)
            work = partial(replay_batch, caller, webhook_id, source, limit, is_first=number == 0)
            async with pace.next_batch():
                batch = await run(caller.principal, work)
            if batch is None:
                break
            replayed += len(batch.finished)
            still_open += len(batch.still_open)
            source = batch.next_source
        return ReplayResult(
            replayed=replayed,
            still_open=still_open,
            has_more=source is not None,
            cursor=None if source is None else source.cursor,
            deliveries=(
                await self._store.scan(caller.principal, lambda tx: self._attempts.preview(tx, webhook, added=replayed))
                if request.dry_run
                else await self._attempts.schedule_all(webhook)
            ),
        )

    async def redeliver_delivery(self, caller: Caller, delivery_id: str) -> RequestedDelivery:
        """Send one delivery again. If its latest generation is open, it is due now."""
        self._check_request(caller)

        async def redeliver(tx: Transaction) -> RequestedDelivery:
            delivery = await get_own_delivery(tx, caller.principal, delivery_id)
            webhook = await tx.webhooks.get(delivery.webhook_id)
            if webhook is None:
                raise WebhookNotActive("The webhook of this delivery was removed. Register a new one with a cursor.")
            require_enabled(webhook)
            if delivery.event_id is None:
                raise InvalidRequest("This delivery is a gap envelope. Poll the missed events: GET /v1/events")
            await self._requested_deliveries.lock_log(tx, webhook)
            found = await tx.webhook_deliveries.latest_by_event(webhook.id, [delivery.event_id])
            if not found:
                raise NotFound("This delivery was erased in the meantime.")
            (latest,) = found
            if latest.state not in OPEN_STATES:
                await self._quotas.require_delivery_quota(tx, caller.principal)
                whole = await tx.deliveries.list_whole([latest.id], bytes_max=REPLAY_BYTES_MAX)
                latest = _get_only(await self._requested_deliveries.insert_replays(tx, webhook, whole))
            await record_own_change(tx, caller, "redeliver", delivery.id)
            scheduled = await self._attempts.schedule_now(tx, webhook)
            return RequestedDelivery(delivery=await tx.deliveries.get(latest.id) or latest, deliveries=scheduled)

        requested = await self._store.write_for(caller.principal, redeliver)
        await self._attempts.schedule_rest(caller.principal, requested.delivery.webhook_id)
        return requested

    def _check_request(self, caller: Caller) -> None:
        caller.require_scope(Scope.WEBHOOKS)
        self._lifecycle.require_running()
        self._quotas.acquire_start(caller.principal, key_id=caller.key_id)

    async def _select_source(
        self, tx: Transaction, caller: Caller, webhook_id: str, request: ReplayRequest
    ) -> tuple[Webhook, _ReplaySource]:
        selected = await _select_source(tx, caller.principal, webhook_id, request)
        if not request.dry_run:
            await self._quotas.require_delivery_quota(tx, caller.principal)
        return selected

    async def _replay_batch(
        self, caller: Caller, webhook_id: str, source: _ReplaySource, limit: int, tx: Transaction, *, is_first: bool
    ) -> _ReplayBatch | None:
        """None, and nothing is sent, if the quota of deliveries is used up."""
        webhook = await get_own_webhook(tx, caller.principal, webhook_id)
        require_enabled(webhook)
        if is_first:
            await record_own_change(tx, caller, "replay_webhook", webhook.id)
        await self._requested_deliveries.lock_log(tx, webhook)
        if not await self._quotas.has_free_delivery_quota(tx, caller.principal):
            return None
        batch = await source.read_batch(tx, webhook, limit=limit)
        whole = await tx.deliveries.list_whole([each.id for each in batch.finished], bytes_max=REPLAY_BYTES_MAX)
        replays = await self._requested_deliveries.insert_replays(tx, webhook, whole)
        return replace(await _cut_batch(tx, batch, source, whole), finished=replays)

    async def _count_batch(
        self, caller: Caller, webhook_id: str, source: _ReplaySource, limit: int, tx: Transaction, *, is_first: bool
    ) -> _ReplayBatch | None:
        del is_first
        return await source.read_batch(tx, await get_own_webhook(tx, caller.principal, webhook_id), limit=limit)


def _get_only(replays: Sequence[Delivery]) -> Delivery:
    """Raise `ContentUnreadable` if the delivery has no replay."""
    if not replays:
        raise ContentUnreadable(
            "The body of this delivery was sealed with a key that this node does not have, or is damaged. Nothing is sent. Try "
            "again: another node may have the key, and its operator can restore it from a backup."
        )
    return replays[0]


async def _cut_batch(
    tx: Transaction, batch: _ReplayBatch, source: _ReplaySource, replayed: Sequence[Delivery]
) -> _ReplayBatch:
    """The batch up to the last of its deliveries that fitted into one transaction."""
    if not replayed or len(replayed) == len(batch.finished):
        return batch
    last = replayed[-1]
    return _ReplayBatch(
        finished=replayed,
        still_open=[each for each in batch.still_open if (each.seq or 0) < (last.seq or 0)],
        next_source=await source.after(tx, last),
    )


async def _require_known_position(tx: Transaction, principal: Principal, cursor: str) -> LogPosition:
    position = decode_log_position(cursor)
    if not await log_contains_position(tx, principal, position):
        raise InvalidCursor(
            "This cursor belongs to an event log that a restored backup has replaced. Send `since` with a time instead."
        )
    return position


async def _select_source(
    tx: Transaction, principal: Principal, webhook_id: str, request: ReplayRequest
) -> tuple[Webhook, _ReplaySource]:
    webhook = await get_own_webhook(tx, principal, webhook_id)
    match request:
        case ReplayRequest(since=datetime() as since, cursor=None, only_dead=False):
            position = LogPosition(await tx.event_log.last_seq_before(webhook.principal, since))
            return webhook, _EventLogSource(position, tx.now())
        case ReplayRequest(since=None, cursor=str() as cursor, only_dead=False):
            position = await _require_known_position(tx, webhook.principal, cursor)
            return webhook, _EventLogSource(position, tx.now())
        case ReplayRequest(since=None, cursor=None, only_dead=True):
            return webhook, _DeadDeliverySource(tx.now())
        case _:
            raise InvalidRequest("Send exactly one of these: since, cursor, or dead: true.")
