"""API keys: the store keeps their hashes only."""

from collections.abc import Sequence
from datetime import datetime

from ringback.domain.ids import KeyId
from ringback.domain.principal import ApiKey
from ringback.storage.rows.columns import RECORDS, instant_to_column
from ringback.storage.rows.unit import SqlRows


class SqlApiKeys(SqlRows, noun="api_keys"):
    """Implements `domain.principal.ApiKeyRows`."""

    async def insert(self, key: ApiKey) -> None:
        await self._sql.execute("insert", **RECORDS.api_key.encode(key))

    async def find_by_hash(self, key_hash: str) -> ApiKey | None:
        return await self._sql.fetch_record("by_hash", RECORDS.api_key, hash=key_hash)

    async def list_all(self) -> Sequence[ApiKey]:
        return await self._sql.fetch_records("all", RECORDS.api_key)

    async def revoke(self, key_id: KeyId, *, now: datetime) -> bool:
        return await self._sql.execute("revoke", id=key_id, now=instant_to_column(now)) == 1
