"""Sealed values, whatever they are: which key sealed them, and how they are sealed anew."""

import sqlite3
from collections.abc import Callable
from typing import Final

from ringback.domain.encryption import ResealStep, SealedColumn, SealedCountStep, Sealer
from ringback.signing.sealing import UnsealError
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements
from ringback.storage.sqlite.deliveries import body_associated_data
from ringback.storage.sqlite.webhooks import secrets_associated_data

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/sealed.sql")
_ASSOCIATED_DATA_BY_COLUMN: Final[dict[SealedColumn, Callable[[str], str]]] = {
    SealedColumn.SECRETS: secrets_associated_data,
    SealedColumn.BODIES: body_associated_data,
}


class SqliteSealedValues:
    """Implements `domain.sealed.SealedRows`."""

    def __init__(self, connection: sqlite3.Connection, *, sealer: Sealer) -> None:
        self._sql = Statements(connection, _SQL)
        self._sealer = sealer

    async def count_by_key(self, column: SealedColumn, *, after: str, limit: int) -> SealedCountStep:
        rows = self._sql.fetch_all(f"count {column}", after=after, limit=limit)
        return SealedCountStep(
            last_id=max((row["last"] for row in rows), default=None),
            counts_by_key={row["key_id"]: row["count"] for row in rows},
        )

    async def reseal(self, column: SealedColumn, *, after: str, limit: int) -> ResealStep:
        rows = self._sql.fetch_all(column, after=after, limit=limit)
        old = [row for row in rows if not self._sealer.is_sealed_with_newest_key(row["sealed"])]
        renewed = [row for row in old if self._reseal_row(column, row)]
        last = rows[-1]["id"] if rows else None
        return ResealStep(last_id=last, resealed=len(renewed), unreadable=len(old) - len(renewed))

    def _reseal_row(self, what: SealedColumn, row: sqlite3.Row) -> bool:
        associated_data = _ASSOCIATED_DATA_BY_COLUMN[what](row["id"])
        try:
            plaintext = self._sealer.unseal(row["sealed"], associated_data=associated_data)
        except UnsealError:
            return False
        self._sql.execute(
            f"put {what}", id=row["id"], sealed=self._sealer.seal(plaintext, associated_data=associated_data)
        )
        return True
