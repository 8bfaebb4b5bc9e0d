"""API keys: the store keeps their hashes only."""

from collections.abc import Sequence
from datetime import datetime

from ringback.domain.cursor import Page
from ringback.domain.ids import KeyId
from ringback.domain.principal import ApiKey, Principal
from ringback.storage.rows.columns import RECORDS, instant_to_column
from ringback.storage.rows.paging import fetch_indexed_page
from ringback.storage.rows.unit import SqlRows


class SqlApiKeys(SqlRows, noun="api_keys"):
    """Implements `domain.principal.ApiKeyRows`."""

    async def insert(self, key: ApiKey) -> None:
        await self._sql.execute("insert", **RECORDS.api_key.encode(key))

    async def find_by_hash(self, key_hash: str) -> ApiKey | None:
        return await self._sql.fetch_record("by_hash", RECORDS.api_key, hash=key_hash)

    async def get(self, key_id: KeyId) -> ApiKey | None:
        return await self._sql.fetch_record("by_id", RECORDS.api_key, id=key_id)

    async def hold(self, key_id: KeyId) -> bool:
        return await self._sql.fetch_one("hold", id=key_id) is not None

    async def list_page(self, principal: Principal | None, *, position: str | None, limit: int) -> Page[ApiKey, str]:
        if principal is None:
            return await fetch_indexed_page(self._sql, "page", RECORDS.api_key.decode, before=position, limit=limit)
        return await fetch_indexed_page(
            self._sql, "page_of_principal", RECORDS.api_key.decode, principal=principal, before=position, limit=limit
        )

    async def list_all(self) -> Sequence[ApiKey]:
        return await self._sql.fetch_records("all", RECORDS.api_key)

    async def revoke(self, key_id: KeyId, *, now: datetime) -> bool:
        return await self._sql.execute("revoke", id=key_id, now=instant_to_column(now)) == 1

    async def replace(self, key_id: KeyId, *, replaced_by: KeyId, expires_at: datetime, now: datetime) -> bool:
        instants = {"expires_at": instant_to_column(expires_at), "now": instant_to_column(now)}
        return await self._sql.execute("replace", id=key_id, replaced_by=replaced_by, **instants) == 1


class SqlKeyOwners(SqlRows, noun="key_owners"):
    """Implements `domain.principal.KeyOwnerRows`."""

    async def is_single(self, *, now: datetime) -> bool:
        return await self._sql.fetch_one("is_single", now=instant_to_column(now)) is not None
