"""Upstreams: the catalog that each of them sent last, the aliases of tools and prompts at `/mcp`, and operators' decisions."""

from collections.abc import Collection, Sequence

from ringback.domain.upstream_rows import CatalogPart, ToolAlias, UpstreamControl
from ringback.storage.rows.columns import RECORDS
from ringback.storage.rows.unit import SqlRows


class SqlUpstreamCatalog(SqlRows, noun="catalog"):
    """Implements `domain.upstream_rows.CatalogRows`."""

    async def list_all(self) -> Sequence[CatalogPart]:
        return await self._sql.fetch_records("all", RECORDS.catalog_part)

    async def save_part(self, part: CatalogPart) -> None:
        await self._sql.execute("save_part", **RECORDS.catalog_part.encode(part))

    async def remove_other_upstreams(self, upstreams: Collection[str]) -> int:
        return await self._sql.execute("remove_other_upstreams", upstreams=self._sql.array(sorted(upstreams)))


class SqlToolAliases(SqlRows, noun="tool_aliases"):
    """Implements `domain.upstream_rows.ToolAliasRows`."""

    async def list_all(self) -> Sequence[ToolAlias]:
        return await self._sql.fetch_records("all", RECORDS.tool_alias)

    async def insert(self, alias: ToolAlias) -> bool:
        return await self._sql.execute("insert", **RECORDS.tool_alias.encode(alias)) == 1


class SqlUpstreamControls(SqlRows, noun="upstream_controls"):
    """Implements `domain.upstream_rows.UpstreamControlRows`."""

    async def list_all(self) -> Sequence[UpstreamControl]:
        return await self._sql.fetch_records("all", RECORDS.upstream_control)

    async def save(self, control: UpstreamControl) -> None:
        await self._sql.execute("save", **RECORDS.upstream_control.encode(control))

    async def remove(self, upstream: str) -> None:
        await self._sql.execute("remove", upstream=upstream)
