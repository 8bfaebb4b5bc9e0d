"""What upstreams told of themselves and listed last, as rows."""

import sqlite3
from collections.abc import Collection, Sequence
from typing import Final

from ringback.domain import jsontext
from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.upstream_rows import CatalogPart
from ringback.storage.codec import instant_to_column, json_to_column
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/catalog.sql")


class SqliteUpstreamCatalog:
    """Implements `domain.catalog.CatalogRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def list_all(self) -> Sequence[CatalogPart]:
        return [
            CatalogPart(
                upstream=row["upstream"],
                part=row["part"],
                body=jsontext.loads(row["body"]),
                fetched_at=from_epoch_milliseconds(row["fetched_at"]),
            )
            for row in self._sql.fetch_all("all")
        ]

    async def save_part(self, part: CatalogPart) -> None:
        self._sql.execute(
            "put",
            upstream=part.upstream,
            part=part.part,
            body=json_to_column(part.body),
            fetched_at=instant_to_column(part.fetched_at),
        )

    async def remove_other_upstreams(self, upstreams: Collection[str]) -> int:
        return self._sql.execute("keep_only", upstreams=json_to_column(sorted(upstreams)))
