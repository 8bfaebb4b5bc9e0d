"""The delivery queue: what is due and leased for the dispatcher, and what the janitor releases, ends or probes."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from ringback.domain.circuit_breaker import PAUSE_SECONDS_MAX
from ringback.domain.clock import seconds
from ringback.domain.cursor import Page
from ringback.domain.delivery import Attempt, Delivery, DeliveryUpdate
from ringback.domain.delivery_rows import BODIES_READ_BYTES_MAX
from ringback.domain.ids import DeliveryId, WebhookId
from ringback.storage.rows.columns import RECORDS, column_to_instant, instant_to_column, json_to_column
from ringback.storage.rows.deliveries import SqlDeliveryReader
from ringback.storage.rows.statements import Row

DUE_SCAN_ROWS_MAX: Final = 256
"""Rows read in the order of their due times, before the scan goes webhook by webhook: a quarter of a millisecond, measured."""
WEBHOOKS_SCANNED_MAX: Final = 2_000
"""Webhooks with pending deliveries that one unit of work visits: some 5 ms."""
ORDER_KEYS_SCANNED_MAX: Final = 500
"""Order keys of one webhook that one unit of work visits: some 2 ms."""
HELD_WEBHOOKS_SCANNED_MAX: Final = 1_000
"""Webhooks with held deliveries that one unit of work visits: some 3 ms."""


class SqlDeliveryQueue(SqlDeliveryReader, noun="delivery_queue"):
    """Implements `domain.delivery_rows.DeliveryQueue`."""

    async def list_due_webhooks(
        self, *, now: datetime, excluding: Collection[WebhookId], limit: int, after: str = ""
    ) -> Page[WebhookId, str]:
        """Two scans, because each alone has a bad case.

        In the order of due times, ten thousand rows of one dead receiver come before all other receivers' rows. Webhook by
        webhook, ten thousand webhooks that wait for a later attempt are visited in vain.
        """
        oldest_due = await self._sql.fetch_all("oldest_due", now=instant_to_column(now), limit=DUE_SCAN_ROWS_MAX)
        webhook_ids = [
            webhook_id
            for webhook_id in dict.fromkeys(row["webhook_id"] for row in oldest_due)
            if webhook_id not in excluding
        ][:limit]
        if len(webhook_ids) == limit or len(oldest_due) < DUE_SCAN_ROWS_MAX:
            return Page(webhook_ids, next_position=None)
        visited = await self._sql.fetch_all(
            "due_webhooks", now=instant_to_column(now), scan=WEBHOOKS_SCANNED_MAX, after=after
        )
        due = sorted((row for row in visited if row["due_at"] is not None), key=_row_due_at)
        found = [row["webhook_id"] for row in due if row["webhook_id"] not in excluding]
        if len(found) > limit:
            return Page(found[:limit], next_position=after)  # the other visited webhooks may be due, too
        return Page(found, next_position=visited[-1]["webhook_id"] if len(visited) == WEBHOOKS_SCANNED_MAX else None)

    async def lease_due(
        self,
        webhook_id: WebhookId,
        *,
        now: datetime,
        owner: str,
        token: str,
        until: datetime,
        limit: int,
        ordered: bool,
        after: str = "",
    ) -> Page[Delivery, str]:
        if ordered:
            due = await self._find_due_in_order(webhook_id, now=now, limit=limit, after=after)
        else:
            found = await self.find_due({webhook_id: limit}, now=now)
            due = Page[DeliveryId, str](found.get(webhook_id, ()), next_position=None)
        if not due:
            return Page(next_position=due.next_position)
        leased = await self.lease(due, owner=owner, token=token, until=until)
        left_out = ordered and 0 < len(leased) < len(due)  # their bodies were too large
        return Page(leased, next_position=due.next_position or "" if left_out else due.next_position)

    async def find_due(
        self, limits: Mapping[WebhookId, int], *, now: datetime
    ) -> Mapping[WebhookId, Sequence[DeliveryId]]:
        if not limits:
            return {}
        rows = await self._sql.fetch_all(
            "due",
            limits=json_to_column(list(limits.items())),
            limit=max(limits.values()),
            now=instant_to_column(now),
        )
        found: dict[WebhookId, list[DeliveryId]] = {}
        for row in rows:
            found.setdefault(row["webhook_id"], []).append(row["id"])
        return {webhook_id: ids[: limits[webhook_id]] for webhook_id, ids in found.items()}

    async def lease(
        self, delivery_ids: Collection[DeliveryId], *, owner: str, token: str, until: datetime
    ) -> Sequence[Delivery]:
        leased = await self._sql.fetch_all(
            "lease",
            ids=self._sql.array(delivery_ids),
            owner=owner,
            token=token,
            until=instant_to_column(until),
            bytes_max=BODIES_READ_BYTES_MAX,
        )
        return await self._fetch_by_ids([row["id"] for row in leased])  # another node may have leased one meanwhile

    async def _find_due_in_order(
        self, webhook_id: WebhookId, *, now: datetime, limit: int, after: str
    ) -> Page[DeliveryId, str]:
        visited = await self._sql.fetch_all(
            "due_in_order", webhook_id=webhook_id, now=instant_to_column(now), scan=ORDER_KEYS_SCANNED_MAX, after=after
        )
        without_key = await self._sql.fetch_all(
            "due_without_key", webhook_id=webhook_id, now=instant_to_column(now), limit=limit
        )
        due = sorted([*(row for row in visited if row["id"] is not None), *without_key], key=_row_due_at)
        next_position = "" if len(due) > limit else None
        if len(visited) == ORDER_KEYS_SCANNED_MAX:
            next_position = visited[-1]["order_key"]
        return Page((row["id"] for row in due[:limit]), next_position=next_position)

    async def apply_updates(
        self, updates: Sequence[DeliveryUpdate], attempts: Sequence[Attempt] = ()
    ) -> Collection[DeliveryId]:
        rows = await self._sql.fetch_all("apply_updates", rows=encode_updates(updates))
        updated = {row["id"] for row in rows}
        await self.insert_attempts([each for each in attempts if each.delivery_id in updated])
        return updated

    async def insert_attempts(self, attempts: Sequence[Attempt]) -> None:
        await self._sql.execute_many("insert_attempt", [RECORDS.attempt.encode(attempt) for attempt in attempts])

    async def give_up_expired(self, webhook_id: WebhookId, *, now: datetime, limit: int) -> Sequence[Delivery]:
        bounds = {"limit": limit, "bytes_max": BODIES_READ_BYTES_MAX}
        ended = await self._sql.fetch_all("give_up", webhook_id=webhook_id, now=instant_to_column(now), **bounds)
        return await self._fetch_by_ids([row["id"] for row in ended])

    async def next_due_at(self) -> datetime | None:
        (row,) = await self._sql.fetch_all("next_due")
        return column_to_instant(row["due_at"])


def encode_updates(updates: Sequence[DeliveryUpdate]) -> str:
    """The rows of `apply_updates`."""
    return json_to_column(
        [
            (
                each.delivery.id,
                each.state,
                each.delivery.attempts,
                instant_to_column(each.due_at),
                each.category,
                instant_to_column(each.finished_at),
                each.delivery.lease_token,
            )
            for each in updates
        ]
    )


def _row_due_at(row: Row) -> int:
    return row["due_at"]


class SqlDeliveryMaintenance(SqlDeliveryReader, noun="delivery_maintenance"):
    """Implements `domain.delivery_rows.DeliveryMaintenance`."""

    async def release_expired_leases(self, *, now: datetime, limit: int) -> int:
        return await self._sql.execute("release_expired_leases", now=instant_to_column(now), limit=limit)

    async def release_leases(self, *, owner: str, own: bool, limit: int) -> int:
        return await self._sql.execute("release_leases", owner=owner, own=own, limit=limit)

    async def release_unused_leases(self, delivery_ids: Sequence[str], *, tokens: Sequence[str]) -> int:
        ids, held = self._sql.array(delivery_ids), self._sql.array(tokens)
        return await self._sql.execute("release_unused_leases", ids=ids, tokens=held)

    async def give_up_expired_held(self, *, now: datetime, limit: int) -> Sequence[Delivery]:
        bounds = {"limit": limit, "bytes_max": BODIES_READ_BYTES_MAX}
        ended = await self._sql.fetch_all("give_up_held", now=instant_to_column(now), **bounds)
        return await self._fetch_by_ids([row["id"] for row in ended])

    async def list_webhooks_to_give_up(
        self, webhook_ids: Collection[WebhookId], *, now: datetime
    ) -> Collection[WebhookId]:
        if not webhook_ids:
            return ()
        ids = self._sql.array(list(webhook_ids))
        rows = await self._sql.fetch_all("webhooks_to_give_up", webhook_ids=ids, now=instant_to_column(now))
        return {row["id"] for row in rows}

    async def pull_back(self, *, due_after: datetime, now: datetime, limit: int) -> int:
        return await self._sql.execute(
            "pull_back", due_after=instant_to_column(due_after), now=instant_to_column(now), limit=limit
        )

    async def list_webhooks_to_release(self, *, limit: int, after: str = "") -> Page[WebhookId, str]:
        rows = await self._sql.fetch_all("webhooks_to_release", scan=HELD_WEBHOOKS_SCANNED_MAX, after=after)
        return _selected_page(rows, limit=limit)

    async def list_webhooks_to_probe(self, *, now: datetime, limit: int, after: str = "") -> Page[WebhookId, str]:
        rows = await self._sql.fetch_all(
            "webhooks_to_probe",
            now=instant_to_column(now),
            paused_until_max=instant_to_column(now + seconds(PAUSE_SECONDS_MAX)),
            scan=HELD_WEBHOOKS_SCANNED_MAX,
            after=after,
        )
        return _selected_page(rows, limit=limit)


def _selected_page(visited: Sequence[Row], *, limit: int) -> Page[WebhookId, str]:
    wanted = [row["id"] for row in visited if row["wanted"]]
    if len(wanted) > limit:
        return Page(wanted[:limit], next_position=wanted[limit - 1])
    return Page(wanted, next_position=visited[-1]["id"] if len(visited) == HELD_WEBHOOKS_SCANNED_MAX else None)
