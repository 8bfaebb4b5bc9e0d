"""Sends the ended deliveries again that match a filter, of all webhooks of the principal.

find   ── up to 100 deliveries of the index, oldest first ──▶ replay, a transaction for each megabyte ──▶ the next 100 …
then   each webhook with a replay: its pending deliveries are due now (`attempt_scheduling`)
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from ringback.domain.clock import epoch_milliseconds, from_epoch_milliseconds
from ringback.domain.cursor import Page, RedeliveryPosition
from ringback.domain.delivery import OPEN_STATES, Delivery
from ringback.domain.delivery_rows import RedeliveryFilter
from ringback.domain.errors import InvalidRequest
from ringback.domain.ids import WebhookId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope
from ringback.domain.webhook import Webhook, WebhookState
from ringback.notifier.requested_deliveries import RequestedDeliveries
from ringback.services.audit import record_own_change
from ringback.services.deliveries.replays import REPLAY_BATCH_SIZE, REPLAY_BYTES_MAX
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.pacing import BatchPace
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.services.webhooks.attempt_scheduling import AttemptScheduler, OpenDeliveries

REDELIVERIES_MAX: Final = 2_000
"""Deliveries of one request. Each may be of another webhook, whose pending deliveries take a transaction of their own."""
PAGES_MAX: Final = 100
"""Pages of one request, most of which may be empty: half a million rows are visited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkRedelivery:
    redelivered: int
    skipped: int
    """Deliveries whose webhook is disabled or removed, those that another request sent again meanwhile, and those whose body
    cannot be read."""
    webhooks: int
    """Webhooks of the redelivered ones."""
    deliveries: OpenDeliveries
    """The open deliveries of these webhooks together. `next_attempt_at` is the earliest."""
    next_position: RedeliveryPosition | None
    """Where the next request continues; None at the end."""


@dataclass(frozen=True, slots=True)
class _RedeliveredBatch:
    replayed: Sequence[Delivery]
    left: Sequence[Delivery]
    """What did not fit into the transaction."""


class BulkRedeliveries:
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
        self._requested_deliveries = requested_deliveries
        self._attempts = attempts
        self._quotas = quotas
        self._lifecycle = lifecycle

    async def redeliver(
        self, caller: Caller, where: RedeliveryFilter, *, position: RedeliveryPosition | None, dry_run: bool
    ) -> BulkRedelivery:
        """Send at most `REDELIVERIES_MAX` deliveries again. With `dry_run`, count them and change nothing.

        Raises `QuotaExceeded` while another bulk request of the principal runs on this node.
        """
        caller.require_scope(Scope.WEBHOOKS)
        self._lifecycle.require_running()
        if where.state in OPEN_STATES:
            raise InvalidRequest("state: only ended deliveries are sent again: dead, cancelled or delivered.")
        with self._quotas.open_bulk_request(caller.principal):
            self._quotas.acquire_start(caller.principal, key_id=caller.key_id)
            return await self._redeliver_pages(caller, where, position, dry_run=dry_run)

    async def _redeliver_pages(
        self, caller: Caller, where: RedeliveryFilter, position: RedeliveryPosition | None, *, dry_run: bool
    ) -> BulkRedelivery:
        until = await self._store.read(lambda tx: self._find_end(tx, caller, where, position, dry_run=dry_run))
        where = replace(where, until=until)
        sent: defaultdict[WebhookId, int] = defaultdict(int)
        skipped, after = 0, "" if position is None else position.delivery_id
        pace = self._quotas.pace_batches()
        for _ in range(PAGES_MAX):
            page = await self._find_ended(caller, where, after=after, limit=REPLAY_BATCH_SIZE)
            skipped_now = await self._redeliver_page(caller, page, sent, pace, dry_run=dry_run)
            if skipped_now is None:
                break
            skipped += skipped_now
            after = page.next_position
            if after is None or sum(sent.values()) + REPLAY_BATCH_SIZE > REDELIVERIES_MAX:
                break
        return BulkRedelivery(
            redelivered=sum(sent.values()),
            skipped=skipped,
            webhooks=len(sent),
            deliveries=await self._schedule_all(sent, pace, dry_run=dry_run),
            next_position=None if after is None else RedeliveryPosition(epoch_milliseconds(until), after),
        )

    async def _find_end(
        self,
        tx: Transaction,
        caller: Caller,
        where: RedeliveryFilter,
        position: RedeliveryPosition | None,
        *,
        dry_run: bool,
    ) -> datetime:
        if not dry_run:
            await self._quotas.require_delivery_quota(tx, caller.principal)
        return await _find_end(tx, where, position)

    async def _find_ended(
        self, caller: Caller, where: RedeliveryFilter, *, after: str, limit: int
    ) -> Page[Delivery, str]:
        return await self._store.scan(
            caller.principal, lambda tx: tx.ended_deliveries.find(caller.principal, where, after=after, limit=limit)
        )

    async def _redeliver_page(
        self,
        caller: Caller,
        page: Sequence[Delivery],
        sent: defaultdict[WebhookId, int],
        pace: BatchPace,
        *,
        dry_run: bool,
    ) -> int | None:
        """Send the deliveries again and count them in `sent`. Return the number of skipped ones.

        None if the quota of deliveries was used up before all of them were sent. Another request can send the rest, from
        this page on.
        """
        left, skipped = list(page), 0
        while left:
            async with pace.next_batch():
                batch = await self._run_batch(caller, left, is_first=not sent, dry_run=dry_run)
            if batch is None:
                return None
            for each in batch.replayed:
                sent[each.webhook_id] += 1
            skipped += len(left) - len(batch.replayed) - len(batch.left)
            left = list(batch.left)
        return skipped

    async def _run_batch(
        self, caller: Caller, wanted: Sequence[Delivery], *, is_first: bool, dry_run: bool
    ) -> "_RedeliveredBatch | None":
        async def replay(tx: Transaction) -> _RedeliveredBatch | None:
            if not dry_run and not await self._quotas.has_free_delivery_quota(tx, caller.principal):
                return None
            found = await tx.webhooks.get_many({each.webhook_id for each in wanted}, lock=not dry_run)
            batch = await self._replay(tx, list(_enabled(found)), wanted, dry_run=dry_run)
            if batch.replayed and is_first and not dry_run:
                await record_own_change(tx, caller, "redeliver_many")
            return batch

        run = self._store.scan if dry_run else self._store.write_for
        return await run(caller.principal, replay)

    async def _replay(
        self, tx: Transaction, webhooks: Sequence[Webhook], wanted: Sequence[Delivery], *, dry_run: bool
    ) -> "_RedeliveredBatch":
        """Replay as many as have `REPLAY_BYTES_MAX`. One whose body cannot be read has no replay."""
        replayed: list[Delivery] = []
        read: list[Delivery] = []
        bytes_left = REPLAY_BYTES_MAX
        for webhook in webhooks:
            if bytes_left <= 0:
                return _RedeliveredBatch(replayed, _without(wanted, read))
            if dry_run:
                replayed += await _list_ended(tx, webhook, wanted)
                continue
            await self._requested_deliveries.lock_log(tx, webhook)
            ended = await _list_ended(tx, webhook, wanted)
            whole = await tx.deliveries.list_whole([each.id for each in ended], bytes_max=bytes_left)
            replayed += await self._requested_deliveries.insert_replays(tx, webhook, whole)
            read += whole
            bytes_left -= sum(len(each.body) for each in whole)
            if len(whole) < len(ended):
                return _RedeliveredBatch(replayed, _without(wanted, read))
        return _RedeliveredBatch(replayed, ())

    async def _schedule_all(self, sent: Mapping[WebhookId, int], pace: BatchPace, *, dry_run: bool) -> OpenDeliveries:
        scheduled: list[OpenDeliveries] = []
        for webhook_id in sorted(sent):
            async with pace.next_batch():
                scheduled.append(await self._schedule(webhook_id, sent[webhook_id], dry_run=dry_run))
        return _total(scheduled)

    async def _schedule(self, webhook_id: WebhookId, replayed: int, *, dry_run: bool) -> OpenDeliveries:
        webhook = await self._store.read(lambda tx: tx.webhooks.get(webhook_id))
        if webhook is None:  # removed in the meantime
            return OpenDeliveries(due_now=0, held=0, in_flight=0, next_attempt_at=None)
        if dry_run:
            return await self._store.scan(
                webhook.principal, lambda tx: self._attempts.preview(tx, webhook, added=replayed)
            )
        return await self._attempts.schedule_all(webhook)


async def _find_end(tx: Transaction, where: RedeliveryFilter, position: RedeliveryPosition | None) -> datetime:
    """Not later than the first request: what this redelivery inserts is not sent again by it, also if it ends meanwhile."""
    first_request_at = tx.now() if position is None else from_epoch_milliseconds(position.until_milliseconds)
    return min([tx.now(), first_request_at, *([] if where.until is None else [where.until])])


async def _list_ended(tx: Transaction, webhook: Webhook, wanted: Sequence[Delivery]) -> Sequence[Delivery]:
    """The latest generation of each of the webhook's deliveries, unless it is open: another request may have been first."""
    event_ids = [each.event_id for each in wanted if each.webhook_id == webhook.id and each.event_id is not None]
    latest = await tx.webhook_deliveries.latest_by_event(webhook.id, event_ids)
    return [each for each in latest if each.state not in OPEN_STATES]


def _without(wanted: Sequence[Delivery], read: Sequence[Delivery]) -> Sequence[Delivery]:
    done = {(each.webhook_id, each.event_id) for each in read}
    return [each for each in wanted if (each.webhook_id, each.event_id) not in done]


def _enabled(webhooks: Sequence[Webhook]) -> Sequence[Webhook]:
    return [each for each in webhooks if each.state is not WebhookState.DISABLED]


def _total(each_webhook: Sequence[OpenDeliveries]) -> OpenDeliveries:
    times: list[datetime] = [each.next_attempt_at for each in each_webhook if each.next_attempt_at is not None]
    return OpenDeliveries(
        due_now=sum(each.due_now for each in each_webhook),
        held=sum(each.held for each in each_webhook),
        in_flight=sum(each.in_flight for each in each_webhook),
        next_attempt_at=min(times, default=None),
    )
