"""Which upstreams have tokens, and since when the configuration does not have them any more."""

from collections.abc import Collection, Sequence
from datetime import datetime

from ringback.domain.unused_logins import UnusedLogin
from ringback.storage.rows.columns import RECORDS, instant_to_column
from ringback.storage.rows.unit import SqlRows


class SqlUnusedLogins(SqlRows, noun="unused_logins"):
    """Implements `domain.unused_logins.UnusedLoginRows`."""

    async def list_upstreams(self, *, limit: int) -> Sequence[str]:
        return [row["upstream"] for row in await self._sql.fetch_all("with_tokens", limit=limit)]

    async def mark(self, upstreams: Collection[str], *, now: datetime) -> int:
        since = instant_to_column(now)
        marked = [await self._sql.execute("insert", upstream=each, unused_since=since) for each in upstreams]
        return sum(marked)

    async def unmark(self, upstreams: Collection[str]) -> None:
        await self._sql.execute("delete", upstreams=self._sql.array(list(upstreams)))

    async def find_due(self, *, cutoff: datetime) -> UnusedLogin | None:
        return await self._sql.fetch_record("due", RECORDS.unused_login, cutoff=instant_to_column(cutoff))

    async def remove_tokens(self, unused: UnusedLogin, *, limit: int) -> int:
        since = instant_to_column(unused.unused_since)
        return await self._sql.execute("remove_tokens", upstream=unused.upstream, unused_since=since, limit=limit)
