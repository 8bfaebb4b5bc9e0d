"""Upstreams: the catalog that each of them sent last, and the stored aliases of tools and prompts at `/mcp`."""

from collections.abc import Collection, Sequence

from ringback.domain.upstream_rows import CatalogPart, ToolAlias
from ringback.storage.sqlite.columns import RECORDS, json_to_column
from ringback.storage.sqlite.unit_of_work import SqliteRows


class SqliteUpstreamCatalog(SqliteRows, noun="catalog"):
    """Implements `domain.upstream_rows.CatalogRows`."""

    async def list_all(self) -> Sequence[CatalogPart]:
        return self._sql.fetch_records("all", RECORDS.catalog_part)

    async def save_part(self, part: CatalogPart) -> None:
        self._sql.execute("save_part", **RECORDS.catalog_part.encode(part))

    async def remove_other_upstreams(self, upstreams: Collection[str]) -> int:
        return self._sql.execute("remove_other_upstreams", upstreams=json_to_column(sorted(upstreams)))


class SqliteToolAliases(SqliteRows, noun="tool_aliases"):
    """Implements `domain.upstream_rows.ToolAliasRows`."""

    async def list_all(self) -> Sequence[ToolAlias]:
        return self._sql.fetch_records("all", RECORDS.tool_alias)

    async def insert(self, alias: ToolAlias) -> bool:
        return self._sql.execute("insert", **RECORDS.tool_alias.encode(alias)) == 1
