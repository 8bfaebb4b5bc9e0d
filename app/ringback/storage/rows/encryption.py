"""Sealed values: which key sealed them, and how they get a newer key."""

from collections.abc import Callable
from typing import Final

from ringback.domain.encryption import RESEALED_BYTES_MAX, ResealStep, SealedColumn, SealedCountStep
from ringback.signing.sealing import UnsealError
from ringback.storage.rows.deliveries import body_associated_data
from ringback.storage.rows.mcp_sessions import state_associated_data
from ringback.storage.rows.statements import Row
from ringback.storage.rows.unit import SqlRows
from ringback.storage.rows.upstream_logins import client_associated_data, login_associated_data, tokens_associated_data
from ringback.storage.rows.webhook_reader import secrets_associated_data

_ASSOCIATED_DATA_BY_COLUMN: Final[dict[SealedColumn, Callable[[str], str]]] = {
    SealedColumn.SECRETS: secrets_associated_data,
    SealedColumn.BODIES: body_associated_data,
    SealedColumn.SESSIONS: state_associated_data,
    SealedColumn.LOGINS: login_associated_data,
    SealedColumn.TOKENS: tokens_associated_data,
    SealedColumn.CLIENTS: client_associated_data,
}


class SqlSealedValues(SqlRows, noun="sealed_values"):
    """Implements `domain.encryption.SealedRows`."""

    async def count_by_key(self, column: SealedColumn, *, after: str, limit: int) -> SealedCountStep:
        rows = await self._sql.fetch_all(f"count {column}", after=after, limit=limit)
        return SealedCountStep(
            last_id=max((row["last"] for row in rows), default=None),
            counts_by_key={row["key_id"]: row["count"] for row in rows},
        )

    async def reseal(self, column: SealedColumn, *, after: str, limit: int) -> ResealStep:
        rows = await self._sql.fetch_all(column, after=after, limit=limit, bytes_max=RESEALED_BYTES_MAX)
        old = [row for row in rows if not self._unit.sealer.is_sealed_with_newest_key(row["sealed"])]
        resealed = [row for row in old if await self._reseal_row(column, row)]
        last = rows[-1]["id"] if rows else None
        return ResealStep(last_id=last, resealed=len(resealed), unreadable=len(old) - len(resealed))

    async def _reseal_row(self, column: SealedColumn, row: Row) -> bool:
        sealer, associated_data = self._unit.sealer, _ASSOCIATED_DATA_BY_COLUMN[column](row["id"])
        try:
            plaintext = sealer.unseal(row["sealed"], associated_data=associated_data)
        except UnsealError:
            return False
        await self._sql.execute(
            f"put {column}", id=row["id"], sealed=sealer.seal(plaintext, associated_data=associated_data)
        )
        return True
