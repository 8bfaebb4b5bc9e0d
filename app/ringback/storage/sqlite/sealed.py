"""Sealed values, whatever they are: which key sealed them, and how they are sealed anew."""

import sqlite3
from collections.abc import Callable
from typing import Final

from ringback.domain.sealed import Counted, Renewed, Sealed, Sealer
from ringback.signing.sealing import UnsealError
from ringback.storage.queries import load
from ringback.storage.sqlite.database import Statements
from ringback.storage.sqlite.deliveries import place_of_body
from ringback.storage.sqlite.webhooks import place_of_secrets

_SQL: Final = load("ringback.storage.sqlite", "sql/sealed.sql")
_PLACES: Final[dict[Sealed, Callable[[str], str]]] = {
    Sealed.SECRETS: place_of_secrets,
    Sealed.BODIES: place_of_body,
}


class SqliteSealed:
    """Implements `domain.sealed.SealedRows`."""

    def __init__(self, connection: sqlite3.Connection, *, sealer: Sealer) -> None:
        self._sql = Statements(connection, _SQL)
        self._sealer = sealer

    async def count(self, what: Sealed, *, after: str, limit: int) -> Counted:
        rows = self._sql.all(f"count {what}", after=after, limit=limit)
        return Counted(
            last=max((row["last"] for row in rows), default=None),
            by_key={row["key_id"]: row["count"] for row in rows},
        )

    async def renew(self, what: Sealed, *, after: str, limit: int) -> Renewed:
        rows = self._sql.all(what, after=after, limit=limit)
        old = [row for row in rows if not self._sealer.is_current(row["sealed"])]
        renewed = [row for row in old if self._renew(what, row)]
        last = rows[-1]["id"] if rows else None
        return Renewed(last=last, renewed=len(renewed), unreadable=len(old) - len(renewed))

    def _renew(self, what: Sealed, row: sqlite3.Row) -> bool:
        place = _PLACES[what](row["id"])
        try:
            plaintext = self._sealer.unseal(row["sealed"], place=place)
        except UnsealError:
            return False
        self._sql.change(f"put {what}", id=row["id"], sealed=self._sealer.seal(plaintext, place=place))
        return True
