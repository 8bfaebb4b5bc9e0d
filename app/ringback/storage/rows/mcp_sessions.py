"""Legacy MCP sessions, whose state is sealed."""

import logging
from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Final

from ringback.domain.clock import from_epoch_milliseconds
from ringback.domain.mcp_sessions import McpSession, McpSessionId
from ringback.domain.principal import Principal
from ringback.signing.sealing import UnsealError
from ringback.storage.rows.columns import RECORDS, instant_to_column
from ringback.storage.rows.statements import Row
from ringback.storage.rows.unit import SqlRows

log = logging.getLogger(__name__)

_SESSION: Final = RECORDS.mcp_session
_ENCODE_STATE: Final = _SESSION.encoder(("state",))


class SqlMcpSessions(SqlRows, noun="mcp_sessions"):
    """Implements `domain.mcp_sessions.McpSessionRows`."""

    async def save(self, session: McpSession) -> None:
        row = _SESSION.encode(session)
        row["state"] = self._seal_state(session.id, row["state"])
        await self._sql.execute("save", **row)

    async def get(self, session_id: McpSessionId, *, now: datetime) -> McpSession | None:
        row = await self._sql.fetch_one("get", id=session_id, now=instant_to_column(now))
        return None if row is None else self._read_session(row)

    async def count(self, principal: Principal, endpoint: str, *, now: datetime, limit: int) -> int:
        (row,) = await self._sql.fetch_all(
            "count", principal=principal, endpoint=endpoint, now=instant_to_column(now), limit=limit
        )
        count: int = row["sessions"]
        return count

    async def list_expiries(
        self, principal: Principal, endpoint: str, *, now: datetime, limit: int
    ) -> Mapping[McpSessionId, datetime]:
        rows = await self._sql.fetch_all(
            "list_expiries", principal=principal, endpoint=endpoint, now=instant_to_column(now), limit=limit
        )
        return {McpSessionId(row["id"]): from_epoch_milliseconds(row["expires_at"]) for row in rows}

    async def save_state(self, session: McpSession) -> None:
        state = _ENCODE_STATE(session)["state"]
        await self._sql.execute("save_state", id=session.id, state=self._seal_state(session.id, state))

    async def extend(
        self, session_ids: Collection[McpSessionId], *, expires_at: datetime, now: datetime
    ) -> Collection[McpSessionId]:
        rows = await self._sql.fetch_all(
            "extend",
            ids=self._sql.array(list(session_ids)),
            expires_at=instant_to_column(expires_at),
            now=instant_to_column(now),
        )
        return [row["id"] for row in rows]

    async def delete(self, session_id: McpSessionId) -> bool:
        return await self._sql.execute("delete", id=session_id) == 1

    async def remove_expired(self, *, now: datetime, limit: int) -> int:
        return await self._sql.execute("remove_expired", now=instant_to_column(now), limit=limit)

    def _seal_state(self, session_id: str, state: bytes) -> bytes:
        return self._unit.sealer.seal(state, associated_data=state_associated_data(session_id))

    def _read_session(self, row: Row) -> McpSession | None:
        try:
            state = self._unit.sealer.unseal(row["state"], associated_data=state_associated_data(row["id"]))
        except UnsealError:
            log.warning("session.unreadable")
            return None
        return _SESSION.decode(row, state=state)


def state_associated_data(session_id: str) -> str:
    return f"mcp_sessions/{session_id}/state"
