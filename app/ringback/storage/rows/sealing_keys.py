"""The keys that sealed stored values."""

from collections.abc import Mapping
from datetime import datetime

from ringback.domain.encryption import SealingKey
from ringback.storage.rows.columns import column_to_instant, instant_to_column
from ringback.storage.rows.unit import SqlRows


class SqlSealingKeys(SqlRows, noun="sealing_keys"):
    """Implements `domain.encryption.SealingKeyRows`."""

    async def list_all(self) -> Mapping[str, SealingKey]:
        return {
            row["key_id"]: SealingKey(lost_at=column_to_instant(row["lost_at"]), check_value=row["check_value"])
            for row in await self._sql.fetch_all("all")
        }

    async def add(self, key_id: str, check_value: bytes | None) -> None:
        await self._sql.execute("add", key_id=key_id, check_value=check_value)

    async def lacks_any(self) -> bool:
        own = self._unit.sealer.check_values
        used = {key_id: key for key_id, key in (await self.list_all()).items() if key.lost_at is None}
        return any(key_id not in own or key.check_value not in {None, own[key_id]} for key_id, key in used.items())

    async def remove(self, key_id: str) -> None:
        await self._sql.execute("remove", key_id=key_id)

    async def accept_loss(self, key_id: str, *, now: datetime) -> None:
        await self._sql.execute("accept_loss", key_id=key_id, now=instant_to_column(now))
