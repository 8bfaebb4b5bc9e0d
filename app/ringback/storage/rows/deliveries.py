"""Deliveries and their attempts, whose bodies are sealed; the deliveries of one call; and those of one webhook."""

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from ringback.domain.call_rows import REMOVED_BYTES_MAX
from ringback.domain.cursor import Page
from ringback.domain.delivery import SUSPENDED_HOLD_SECONDS_MAX, Attempt, Delivery, DeliveryState
from ringback.domain.delivery_rows import DeliveryFilter, OpenDeliveryCounts, RedeliveryFilter, UndeliveredCounts
from ringback.domain.encryption import Sealer
from ringback.domain.ids import CallId, DeliveryId, EventId, WebhookId, first_id_at
from ringback.domain.principal import Principal
from ringback.signing.sealing import UnsealError
from ringback.storage.rows.columns import RECORDS, column_to_instant, instant_to_column, json_to_column
from ringback.storage.rows.paging import encode_id_range, fetch_scanned_page
from ringback.storage.rows.statements import Row
from ringback.storage.rows.unit import SqlRows

log = logging.getLogger(__name__)

_DELIVERY: Final = RECORDS.delivery
_WHOLE_DELIVERY: Final = RECORDS.whole_delivery
_SUSPENDED_HOLD_MILLISECONDS: Final = round(SUSPENDED_HOLD_SECONDS_MAX * 1000)
_PAGES_OF_ALL: Final = {"page": "page_of_all", "page_of_dead": "page_of_all_dead"}
"""The statements for all principals, where those for one have its index."""
DEAD_SCANNED_MAX: Final = 10_000
"""Dead deliveries of some webhooks that are visited to count those that were not sent again: some 20 ms."""
CREATION_SPREAD: Final = timedelta(hours=1)
"""How far the time of a delivery's id may be after its `created_at`: an id is made in the unit that sets the time, which ends
sooner."""
PENDING_SCANNED_MAX: Final = 2_000
"""Pending deliveries of one webhook that one unit of work visits to make some of them due: some 2 ms."""


class SqlDeliveryReader(SqlRows):
    """Rows that are read as deliveries with their bodies, which it unseals."""

    def _decode(self, row: Row) -> Delivery:
        return _WHOLE_DELIVERY.decode(row, body=_unseal_body(row, self._unit.sealer))

    async def _fetch_deliveries(self, name: str, **parameters: Any) -> list[Delivery]:
        return [self._decode(row) for row in await self._sql.fetch_all(name, **parameters)]

    async def _fetch_by_ids(self, delivery_ids: Sequence[str]) -> list[Delivery]:
        return await self._fetch_deliveries("by_ids", ids=self._sql.array(delivery_ids)) if delivery_ids else []


class SqlDeliveries(SqlDeliveryReader, noun="deliveries"):
    """Implements `domain.delivery_rows.DeliveryRows`."""

    async def insert(self, deliveries: Sequence[Delivery]) -> None:
        if not deliveries:
            return
        await self._sql.execute("insert", rows=encode_new_deliveries(deliveries))
        await self._insert_bodies(deliveries)

    async def _insert_bodies(self, deliveries: Sequence[Delivery]) -> None:
        sealer = self._unit.sealer
        await self._sql.execute_many(
            "insert_body",
            [{"id": each.id, "body": seal_body(each, sealer), "principal": each.principal} for each in deliveries],
        )

    async def get(self, delivery_id: DeliveryId) -> Delivery | None:
        return await self._sql.fetch_record("get", _DELIVERY, id=delivery_id)

    async def list_whole(self, delivery_ids: Sequence[DeliveryId], *, bytes_max: int) -> Sequence[Delivery]:
        if not delivery_ids:
            return []
        return await self._fetch_deliveries("whole_by_ids", ids=self._sql.array(delivery_ids), bytes_max=bytes_max)

    async def list_page(
        self, principal: Principal | None, where: DeliveryFilter, *, position: str | None, limit: int
    ) -> Page[Delivery, str]:
        name = _page_statement(where)
        if principal is None:
            name = _PAGES_OF_ALL.get(name, name)
        page = await fetch_scanned_page(
            self._sql,
            name,
            _DELIVERY.decode,
            limit=limit,
            principal=principal,
            state=where.state,
            webhook_id=where.webhook_id,
            call_id=where.call_id,
            category=where.category,
            min_attempts=where.min_attempts,
            latest=where.latest_only,
            **encode_id_range(
                "dlv", position=position, since=where.since, until=where.until, id_prefix=where.id_prefix
            ),
        )
        if page.next_position is not None and not await self._is_owner(principal, where):
            page.next_position = None  # it is the id of another principal's delivery
        return page

    async def lowest_open_seqs(self, webhook_ids: Collection[WebhookId]) -> Mapping[WebhookId, int]:
        rows = await self._sql.fetch_all("watermarks", webhook_ids=self._sql.array(list(webhook_ids)))
        return {row["webhook_id"]: row["seq"] for row in rows if row["seq"] is not None}

    async def count_undelivered(
        self, webhook_ids: Collection[WebhookId], *, limit: int
    ) -> Mapping[WebhookId, UndeliveredCounts]:
        if not webhook_ids:
            return {}
        ids, scan = self._sql.array(list(webhook_ids)), max(limit, DEAD_SCANNED_MAX // len(webhook_ids))
        rows = await self._sql.fetch_all("undelivered", webhook_ids=ids, scan=scan)
        return {
            row["webhook_id"]: UndeliveredCounts(held=min(row["held"], limit), dead=min(row["dead"], limit))
            for row in rows
        }

    async def list_attempts(self, delivery_id: DeliveryId) -> Sequence[Attempt]:
        return await self._sql.fetch_records("attempts", RECORDS.attempt, delivery_id=delivery_id)

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        bounds = {"limit": limit, "bytes_max": REMOVED_BYTES_MAX}
        return await self._sql.execute("remove", older_than=instant_to_column(cutoff), **bounds)

    async def _is_owner(self, principal: Principal | None, where: DeliveryFilter) -> bool:
        """Whether the filter's call and webhook are the principal's. All deliveries of one call, or of one webhook, are."""
        if principal is None:
            return True
        owners = [
            await self._sql.fetch_one("owner_of_call", call_id=where.call_id) if where.call_id else None,
            await self._sql.fetch_one("owner_of_webhook", webhook_id=where.webhook_id) if where.webhook_id else None,
        ]
        return all(row is None or row["principal"] == principal for row in owners)


def encode_new_deliveries(deliveries: Sequence[Delivery]) -> str:
    """The rows of `insert`, whose columns are in this order."""
    return json_to_column([list(_DELIVERY.encode(delivery).values()) for delivery in deliveries])


def seal_body(delivery: Delivery, sealer: Sealer) -> bytes:
    return sealer.seal(delivery.body, associated_data=body_associated_data(delivery.id))


def _unseal_body(row: Row, sealer: Sealer) -> bytes:
    """Empty when the key is missing: one unreadable row must not hide the others that are read with it."""
    try:
        return sealer.unseal(row["body"], associated_data=body_associated_data(row["id"]))
    except UnsealError:
        facts = {name: row[name] for name in ("webhook_id", "call_id", "principal")}
        log.warning("delivery.unreadable", extra={"delivery_id": row["id"], **facts})
        return b""


def body_associated_data(delivery_id: str) -> str:
    return f"deliveries/{delivery_id}/body"


def _page_statement(delivery_filter: DeliveryFilter) -> str:
    """The statement whose index fits the narrowest filter."""
    if delivery_filter.call_id is not None:
        return "page_of_call"
    page = "page" if delivery_filter.state is not DeliveryState.DEAD else "page_of_dead"
    return page if delivery_filter.webhook_id is None else f"{page}_of_webhook"


class SqlCallDeliveries(SqlRows, noun="call_deliveries"):
    """Implements `domain.delivery_rows.CallDeliveries`."""

    async def cancel_superseded_progress(self, call_ids: Collection[CallId]) -> None:
        if call_ids:
            ids = self._sql.array(list(call_ids))
            await self._sql.execute("cancel_superseded_progress", call_ids=ids, now=instant_to_column(self._unit.now))

    async def cancel_detached(self, call_id: CallId) -> None:
        await self._sql.execute("cancel_detached", call_id=call_id, now=instant_to_column(self._unit.now))

    async def has_unsent(self, call_id: CallId) -> bool:
        (row,) = await self._sql.fetch_all("has_unsent", call_id=call_id)
        return bool(row["has_unsent"])


class SqlWebhookDeliveries(SqlRows, noun="webhook_deliveries"):
    """Implements `domain.delivery_rows.WebhookDeliveries`."""

    async def latest_by_event(self, webhook_id: WebhookId, event_ids: Sequence[EventId]) -> Sequence[Delivery]:
        ids = self._sql.array(list(event_ids))
        return await self._sql.fetch_records("latest_by_event", _DELIVERY, webhook_id=webhook_id, event_ids=ids)

    async def list_dead(self, webhook_id: WebhookId, *, limit: int, after: str = "") -> Page[Delivery, str]:
        return await fetch_scanned_page(
            self._sql, "dead", _DELIVERY.decode, limit=limit, webhook_id=webhook_id, after=after
        )

    async def count_held(self, webhook_id: WebhookId, *, limit: int) -> int:
        row = await self._sql.fetch_one("count_held", webhook_id=webhook_id)
        return 0 if row is None else min(row["held"], limit)

    async def release_held(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> int:
        return await self._sql.execute("release_held", webhook_id=webhook_id, now=instant_to_column(now), limit=limit)

    async def count_open(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> OpenDeliveryCounts:
        (row,) = await self._sql.fetch_all("count_open", webhook_id=webhook_id, now=instant_to_column(now), limit=limit)
        return OpenDeliveryCounts(
            due=row["due"],
            held=row["held"],
            leased=row["leased"],
            first_due_at=column_to_instant(row["first_due_at"]),
        )

    async def make_due(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> int:
        return await self._sql.execute(
            "make_due",
            webhook_id=webhook_id,
            now=instant_to_column(now),
            scan=max(PENDING_SCANNED_MAX, limit),
            limit=limit,
        )

    async def hold_pending(self, webhook_id: WebhookId, *, limit: int, suspended: bool = False) -> int:
        now = instant_to_column(self._unit.now)
        if suspended:
            return await self._sql.execute(
                "suspend_pending", webhook_id=webhook_id, now=now, kept=_SUSPENDED_HOLD_MILLISECONDS, limit=limit
            )
        return await self._sql.execute("hold_pending", webhook_id=webhook_id, now=now, limit=limit)

    async def cancel_open(self, webhook_id: WebhookId, *, now: datetime, limit: int, only_due: bool = False) -> int:
        name = "cancel_due" if only_due else "cancel_open"
        return await self._sql.execute(name, webhook_id=webhook_id, now=instant_to_column(now), limit=limit)


class SqlEndedDeliveries(SqlRows, noun="ended_deliveries"):
    """Implements `domain.delivery_rows.EndedDeliveries`."""

    async def find(
        self, principal: Principal, where: RedeliveryFilter, *, after: str, limit: int
    ) -> Page[Delivery, str]:
        name = "dead" if where.state is DeliveryState.DEAD else "all"
        since = None if where.since is None else first_id_at("dlv", where.since)
        until = where.until or self._unit.now
        return await fetch_scanned_page(
            self._sql,
            name if where.webhook_id is None else f"{name}_of_webhook",
            _DELIVERY.decode,
            limit=limit,
            principal=principal,
            webhook_id=where.webhook_id,
            state=where.state,
            until=instant_to_column(until),
            category=where.category,
            call_id=where.call_id,
            client_session_id=where.client_session_id,
            correlation_id=where.correlation_id,
            after=max(after, since or ""),
            before=first_id_at("dlv", until + CREATION_SPREAD),
        )
