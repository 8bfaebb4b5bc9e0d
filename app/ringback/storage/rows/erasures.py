"""Erasures, and the rows that they read and remove."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from ringback.domain.call_rows import REMOVED_BYTES_MAX
from ringback.domain.erasure import ErasedDeliveryBatch, Erasure, ErasureKind
from ringback.domain.event import Event
from ringback.domain.ids import CallId, ErasureId, EventId, WebhookId
from ringback.domain.principal import Principal
from ringback.storage.rows.columns import RECORDS, column_to_instant, instant_to_column
from ringback.storage.rows.unit import SqlRows

LAST_ROWS_VISITED: Final = 100
"""More than a principal starts within the milliseconds between the making of an id and the write of its row."""
_ANY_TIME: Final = 2**63 - 1
"""Later than every instant in a column."""

_IDENTITY_STATEMENTS: Final = (
    "delete_keys",
    "delete_sign_ins",
    "delete_portal_links",
    "delete_sessions",
    "delete_proofs",
    "delete_event_types",
    "delete_logins",
    "delete_tokens",
    "delete_catalogs",
    "forget_logged_in_by",
    "delete_hours",
)
_REMAINDER_STATEMENTS: Final = ("delete_turns", "delete_call_counts", "delete_subscription_counts")


class SqlErasures(SqlRows, noun="erasures"):
    """Implements `domain.erasure.ErasureRows`."""

    async def insert(self, erasure: Erasure) -> None:
        await self._sql.execute("insert", **RECORDS.erasure.encode(erasure))

    async def get(self, erasure_id: ErasureId) -> Erasure | None:
        return await self._sql.fetch_record("get", RECORDS.erasure, id=erasure_id)

    async def find_open(self, principal: Principal, kind: ErasureKind, target: str) -> Erasure | None:
        return await self._sql.fetch_record(
            "open_of_target", RECORDS.erasure, principal=principal, kind=kind, target=target
        )

    async def find_next(self, *, after: str) -> Erasure | None:
        return await self._find_in_turn("next", after)

    async def find_waiting(self, *, after: str, worked_before: datetime | None) -> Erasure | None:
        cutoff = _ANY_TIME if worked_before is None else instant_to_column(worked_before)
        return await self._find_in_turn("next_waiting", after, worked_before=cutoff)

    async def _find_in_turn(self, name: str, after: str, **parameters: Any) -> Erasure | None:
        found = await self._sql.fetch_record(name, RECORDS.erasure, after=after, **parameters)
        if found is None and after:
            found = await self._sql.fetch_record(name, RECORDS.erasure, after="", **parameters)
        return found

    async def update(self, erasure: Erasure) -> None:
        row = RECORDS.erasure.encode_for(self._sql.parameters("update"), erasure)
        await self._sql.execute("update", **row)

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        return await self._sql.execute("remove", older_than=instant_to_column(cutoff), limit=limit)


class SqlErasedRows(SqlRows, noun="erased_rows"):
    """Implements `domain.erasure.ErasedRows`."""

    async def list_calls(self, erasure: Erasure, *, limit: int, bytes_max: int) -> Sequence[CallId]:
        return [CallId(row["id"]) for row in await self._list("calls", erasure, limit=limit, bytes_max=bytes_max)]

    async def list_open_calls(self, erasure: Erasure, *, limit: int) -> Sequence[CallId]:
        rows = await self._sql.fetch_all(
            "open_calls", client_session_id=erasure.client_session_id, limit=limit, **_scope(erasure)
        )
        return [CallId(row["id"]) for row in rows]

    async def is_any_newer(self, erasure: Erasure) -> bool:
        if erasure.client_session_id is None:
            row = await self._sql.fetch_one("newer_of_principal", head=erasure.head, **_scope(erasure))
        else:
            scope = _scope(erasure) | {"client_session_id": erasure.client_session_id}
            row = await self._sql.fetch_one("newer_of_session", **scope)
        return row is not None

    async def newest_row_at(self, erasure: Erasure) -> datetime | None:
        scope: dict[str, Any] = {"principal": erasure.principal, "limit": LAST_ROWS_VISITED}
        names = ("last_calls", "last_webhooks", "last_subscriptions", "last_tokens")
        if erasure.client_session_id is not None:
            scope["client_session_id"] = erasure.client_session_id
            names = ("last_calls_of_session", "last_webhooks_of_session", "last_subscriptions_of_session")
        last = [row["created_at"] for name in names for row in await self._sql.fetch_all(name, **scope)]
        return column_to_instant(max(last)) if last else None

    async def list_webhooks(self, erasure: Erasure, *, limit: int) -> Sequence[WebhookId]:
        return [WebhookId(row["id"]) for row in await self._list("webhooks", erasure, limit=limit)]

    async def list_call_webhooks(
        self, principal: Principal, call_ids: Sequence[CallId], *, limit: int
    ) -> Sequence[WebhookId]:
        ids = self._sql.array(call_ids)
        rows = await self._sql.fetch_all("webhooks_of_calls", principal=principal, call_ids=ids, limit=limit)
        return [WebhookId(row["id"]) for row in rows]

    async def list_events(
        self, principal: Principal, call_ids: Sequence[CallId], *, seq: int, limit: int
    ) -> Sequence[Event]:
        ids = self._sql.array(call_ids)
        return await self._sql.fetch_records(
            "events_of_calls", RECORDS.event, principal=principal, call_ids=ids, seq=seq, limit=limit
        )

    async def delete_remainder(self, principal: Principal, *, limit: int) -> int:
        breakers = await self._sql.execute("delete_breakers", principal=principal, limit=limit)
        return breakers + sum([await self._sql.execute(name, principal=principal) for name in _REMAINDER_STATEMENTS])

    async def _list(self, name: str, erasure: Erasure, **bounds: int) -> Sequence[Any]:
        """Rows of the session, or of the principal, along the index that fits."""
        if erasure.client_session_id is None:
            return await self._sql.fetch_all(f"{name}_of_principal", **bounds, **_scope(erasure))
        return await self._sql.fetch_all(
            f"{name}_of_session", client_session_id=erasure.client_session_id, **bounds, **_scope(erasure)
        )


class SqlErasedDeliveries(SqlRows, noun="erased_deliveries"):
    """Implements `domain.erasure.ErasedDeliveries`."""

    async def delete_of_calls(self, call_ids: Sequence[CallId], *, limit: int) -> ErasedDeliveryBatch:
        return await self._delete("of_calls", limit, call_ids=self._sql.array(call_ids))

    async def delete_of_webhooks(self, webhook_ids: Sequence[WebhookId], *, limit: int) -> ErasedDeliveryBatch:
        return await self._delete("of_webhooks", limit, webhook_ids=self._sql.array(webhook_ids))

    async def delete_of_event(self, principal: Principal, event_id: EventId, *, limit: int) -> ErasedDeliveryBatch:
        return await self._delete("of_event", limit, principal=principal, event_id=event_id)

    async def delete_of_principal(self, erasure: Erasure, *, limit: int) -> ErasedDeliveryBatch:
        return await self._delete("of_principal", limit, **_scope(erasure))

    async def replace_events(self, events: Sequence[Event]) -> None:
        await self._sql.execute_many("replace_event", [RECORDS.event.encode(event) for event in events])

    async def delete_events(self, erasure: Erasure, *, limit: int) -> int:
        deleted = await self._sql.fetch_all(
            "delete_events",
            principal=erasure.principal,
            head=erasure.head,
            limit=limit,
            bytes_max=REMOVED_BYTES_MAX,
        )
        if deleted:
            floor = max(row["seq"] for row in deleted)
            await self._sql.execute("raise_retention_floor", principal=erasure.principal, seq=floor)
        return len(deleted)

    async def delete_identity(self, erasure: Erasure, *, limit: int) -> int:
        if await self._sql.fetch_one("find_identity", **_scope(erasure)) is None:
            return 0
        return max([await self._sql.execute(name, limit=limit, **_scope(erasure)) for name in _IDENTITY_STATEMENTS])

    async def overwrite_deleted(self) -> None:
        await self._sql.fetch_all("overwrite_deleted")

    async def _delete(self, which: str, limit: int, **scope: Any) -> ErasedDeliveryBatch:
        count = await self._sql.execute(f"delete_{which}", limit=limit, bytes_max=REMOVED_BYTES_MAX, **scope)
        is_done = count < limit and await self._sql.fetch_one(f"first_{which}", **scope) is None
        return ErasedDeliveryBatch(count, is_done=is_done)


def _scope(erasure: Erasure) -> dict[str, Any]:
    return {"principal": erasure.principal, "until": instant_to_column(erasure.requested_at)}
