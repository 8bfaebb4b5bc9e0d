"""Upstreams: the catalog that each of them sent last, the aliases of tools and prompts at `/mcp`, and operators' decisions."""

from collections.abc import Collection, Sequence
from datetime import datetime

from ringback.domain.principal import Principal
from ringback.domain.upstream_rows import CatalogPart, ToolAlias, UpstreamControl
from ringback.storage.rows.columns import RECORDS, instant_to_column
from ringback.storage.rows.unit import SqlRows


class SqlUpstreamCatalog(SqlRows, noun="catalog"):
    """Implements `domain.upstream_rows.CatalogRows`."""

    async def list_all(self) -> Sequence[CatalogPart]:
        return await self._sql.fetch_records("all", RECORDS.catalog_part)

    async def save_part(self, part: CatalogPart) -> None:
        await self._sql.execute("save_part", **RECORDS.catalog_part.encode(part))

    async def remove_other_upstreams(self, upstreams: Collection[str]) -> int:
        return await self._sql.execute("remove_other_upstreams", upstreams=self._sql.array(sorted(upstreams)))

    async def remove_upstream(self, upstream: str) -> int:
        return await self._sql.execute("remove_upstream", upstream=upstream)


class SqlOwnedCatalog(SqlRows, noun="owned_catalog"):
    """Implements `domain.upstream_rows.OwnedCatalogRows`."""

    async def list_parts(self, upstream: str, owner: Principal) -> Sequence[CatalogPart]:
        return await self._sql.fetch_records("of_owner", RECORDS.catalog_part, upstream=upstream, owner=owner)

    async def save_part(self, owner: Principal, part: CatalogPart) -> None:
        await self._sql.execute("save_part", owner=owner, **RECORDS.catalog_part.encode(part))

    async def list_upstreams(self) -> Sequence[str]:
        """One step along the index for each upstream, because each may have the rows of thousands of owners."""
        upstreams = [""]
        while (row := await self._sql.fetch_one("next_upstream", after=upstreams[-1])) is not None:
            upstreams.append(row["upstream"])
        return upstreams[1:]

    async def remove_upstream(self, upstream: str, *, limit: int) -> int:
        return await self._sql.execute("remove_upstream", upstream=upstream, limit=limit)

    async def remove_owned(self, upstream: str, owner: Principal) -> int:
        return await self._sql.execute("remove_owned", upstream=upstream, owner=owner)

    async def remove_old(self, *, cutoff: datetime, limit: int) -> int:
        return await self._sql.execute("remove_old", older_than=instant_to_column(cutoff), limit=limit)


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
