"""What upstreams told of themselves and listed last, as rows."""

import sqlite3
from collections.abc import Collection, Sequence
from typing import Final

from ringback.domain import jsontext
from ringback.domain.catalog import CatalogPart
from ringback.domain.clock import from_epoch_milliseconds
from ringback.storage.queries import load
from ringback.storage.sqlite.columns import from_instant, from_json
from ringback.storage.sqlite.database import Statements

_SQL: Final = load("ringback.storage.sqlite", "sql/catalog.sql")


class SqliteCatalog:
    """Implements `domain.catalog.CatalogRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def all(self) -> Sequence[CatalogPart]:
        return [
            CatalogPart(
                upstream=row["upstream"],
                part=row["part"],
                body=jsontext.loads(row["body"]),
                fetched_at=from_epoch_milliseconds(row["fetched_at"]),
            )
            for row in self._sql.all("all")
        ]

    async def put(self, part: CatalogPart) -> None:
        self._sql.change(
            "put",
            upstream=part.upstream,
            part=part.part,
            body=from_json(part.body),
            fetched_at=from_instant(part.fetched_at),
        )

    async def keep_only(self, upstreams: Collection[str]) -> int:
        return self._sql.change("keep_only", upstreams=from_json(sorted(upstreams)))
