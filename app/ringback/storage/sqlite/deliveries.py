"""Deliveries and their attempts, as rows; bodies are sealed."""

import logging
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.cursor import Page
from ringback.domain.delivery import Attempt, AttemptCategory, Delivery, DeliveryKind, DeliveryState
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.encryption import Sealer
from ringback.domain.ids import DeliveryId, WebhookId
from ringback.domain.principal import Principal
from ringback.signing.sealing import UnsealError
from ringback.storage.codec import column_to_instant, instant_to_column, json_to_column
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements
from ringback.storage.sqlite.paging import fetch_indexed_page, fetch_scanned_page

log = logging.getLogger(__name__)

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/deliveries.sql")


class SqliteDeliveries:
    """Implements `domain.delivery_rows.DeliveryRows`."""

    def __init__(self, connection: sqlite3.Connection, *, sealer: Sealer) -> None:
        self._sql = Statements(connection, _SQL)
        self._sealer = sealer

    async def insert(self, deliveries: Sequence[Delivery]) -> None:
        self._sql.execute_many("insert", [delivery_to_row(delivery) for delivery in deliveries])
        self._sql.execute_many(
            "insert_body",
            [
                {
                    "id": delivery.id,
                    "body": self._sealer.seal(delivery.body, associated_data=body_associated_data(delivery.id)),
                }
                for delivery in deliveries
            ],
        )

    async def get(self, delivery_id: DeliveryId) -> Delivery | None:
        row = self._sql.fetch_one("get", id=delivery_id)
        return None if row is None else row_to_delivery(row, self._sealer)

    async def list_page(
        self, principal: Principal, where: DeliveryFilter, *, position: str | None, limit: int
    ) -> Page[Delivery, str]:
        name = _page_statement(where)
        page = (fetch_indexed_page if "dead" in name else fetch_scanned_page)(
            self._sql,
            name,
            lambda row: row_to_delivery(row, self._sealer),
            limit=limit,
            principal=principal,
            state=where.state,
            webhook_id=where.webhook_id,
            call_id=where.call_id,
            before=position,
        )
        if page.next_position is not None and not self._is_owner(principal, where):
            page.next_position = None  # it is the id of another principal's delivery
        return page

    async def lowest_open_seqs(self, webhook_ids: Collection[WebhookId]) -> Mapping[WebhookId, int]:
        rows = self._sql.fetch_all("watermarks", webhook_ids=json_to_column(list(webhook_ids)))
        return {row["webhook_id"]: row["seq"] for row in rows if row["seq"] is not None}

    async def list_attempts(self, delivery_id: DeliveryId) -> Sequence[Attempt]:
        return [_row_to_attempt(row) for row in self._sql.fetch_all("attempts", delivery_id=delivery_id)]

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        return self._sql.execute("remove", older_than=instant_to_column(cutoff), limit=limit)

    def _is_owner(self, principal: Principal, where: DeliveryFilter) -> bool:
        """Whether what the filter names is the principal's: all deliveries of a call are of one, and so are a webhook's."""
        owner_statements = ("owner_of_call", "owner_of_webhook")
        for statement, name in zip(owner_statements, (where.call_id, where.webhook_id), strict=True):
            row = (
                None
                if name is None
                else self._sql.fetch_one(statement, call_id=where.call_id, webhook_id=where.webhook_id)
            )
            if row is not None and row["principal"] != principal:
                return False
        return True


def delivery_to_row(delivery: Delivery) -> dict[str, Any]:
    """Everything but the body, which never changes and stands in a table of its own."""
    return {
        "id": delivery.id,
        "principal": delivery.principal,
        "webhook_id": delivery.webhook_id,
        "event_id": delivery.event_id,
        "kind": delivery.kind,
        "call_id": delivery.call_id,
        "seq": delivery.seq,
        "generation": delivery.generation,
        "state": delivery.state,
        "attempts": delivery.attempts,
        "due_at": instant_to_column(delivery.due_at),
        "give_up_at": instant_to_column(delivery.give_up_at),
        "order_key": delivery.order_key,
        "lease_owner": delivery.lease_owner,
        "lease_token": delivery.lease_token,
        "lease_until": instant_to_column(delivery.lease_until),
        "last_category": delivery.last_category,
        "created_at": instant_to_column(delivery.created_at),
        "finished_at": instant_to_column(delivery.finished_at),
    }


def row_to_delivery(row: sqlite3.Row, sealer: Sealer) -> Delivery:
    """A row of the view `whole_deliveries`."""
    return Delivery(
        id=row["id"],
        principal=row["principal"],
        webhook_id=row["webhook_id"],
        event_id=row["event_id"],
        kind=DeliveryKind(row["kind"]),
        call_id=row["call_id"],
        seq=row["seq"],
        generation=row["generation"],
        body=_unseal_body(row, sealer),
        state=DeliveryState(row["state"]),
        attempts=row["attempts"],
        due_at=from_epoch_milliseconds(row["due_at"]),
        give_up_at=from_epoch_milliseconds(row["give_up_at"]),
        order_key=row["order_key"],
        lease_owner=row["lease_owner"],
        lease_token=row["lease_token"],
        lease_until=column_to_instant(row["lease_until"]),
        last_category=None if row["last_category"] is None else AttemptCategory(row["last_category"]),
        created_at=from_epoch_milliseconds(row["created_at"]),
        finished_at=column_to_instant(row["finished_at"]),
    )


def _unseal_body(row: sqlite3.Row, sealer: Sealer) -> bytes:
    """Empty when its key is gone: one such row must not stop the others that are read with it."""
    try:
        return sealer.unseal(row["body"], associated_data=body_associated_data(row["id"]))
    except UnsealError:
        log.warning("delivery.unreadable", extra={"delivery_id": row["id"]})
        return b""


def _row_to_attempt(row: sqlite3.Row) -> Attempt:
    return Attempt(
        id=row["id"],
        delivery_id=row["delivery_id"],
        number=row["number"],
        started_at=from_epoch_milliseconds(row["started_at"]),
        duration_ms=row["duration_ms"],
        category=AttemptCategory(row["category"]),
        status_code=row["status_code"],
        excerpt=row["excerpt"],
    )


def _page_statement(delivery_filter: DeliveryFilter) -> str:
    """The statement whose index fits the narrowest filter."""
    if delivery_filter.call_id is not None:
        return "page_of_call"
    page = "page" if delivery_filter.state is not DeliveryState.DEAD else "page_of_dead"
    return page if delivery_filter.webhook_id is None else f"{page}_of_webhook"


def body_associated_data(delivery_id: str) -> str:
    return f"deliveries/{delivery_id}/body"
