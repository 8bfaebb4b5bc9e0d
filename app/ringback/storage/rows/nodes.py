"""What nodes decide together: which of them has a duty, and how fast webhooks receive."""

from datetime import datetime
from typing import Final

from ringback.domain.ids import WebhookId
from ringback.storage.rows.columns import instant_to_column
from ringback.storage.rows.unit import SqlRows

_MICROSECONDS: Final = 1_000_000


class SqlLeaders(SqlRows, noun="leaders"):
    """Implements `domain.node_rows.LeaderRows`."""

    async def acquire(self, duty: str, *, owner: str, until: datetime, now: datetime) -> bool:
        until_column, now_column = instant_to_column(until), instant_to_column(now)
        return await self._sql.execute("acquire", duty=duty, owner=owner, until=until_column, now=now_column) == 1

    async def release(self, duty: str, *, owner: str) -> None:
        await self._sql.execute("release", duty=duty, owner=owner)

    async def shorten_lease(self, duty: str, *, ends_after: datetime, until: datetime) -> None:
        times = {"ends_after": instant_to_column(ends_after), "until": instant_to_column(until)}
        await self._sql.execute("shorten_lease", duty=duty, **times)

    async def is_held(self, duty: str, *, now: datetime) -> bool:
        (row,) = await self._sql.fetch_all("is_held", duty=duty, now=instant_to_column(now))
        return bool(row["is_held"])


class SqlWebhookRates(SqlRows, noun="webhook_rates"):
    """Implements `domain.node_rows.WebhookRateRows`."""

    async def lock(self, webhook_id: WebhookId) -> float | None:
        row = await self._sql.fetch_one("lock", webhook_id=webhook_id)
        if row is None:
            await self._sql.execute("add", webhook_id=webhook_id)
            row = await self._sql.fetch_one("lock", webhook_id=webhook_id)
        return None if row is None else row["full_at"] / _MICROSECONDS

    async def save(self, webhook_id: WebhookId, *, full_at: float) -> None:
        await self._sql.execute("save", webhook_id=webhook_id, full_at=round(full_at * _MICROSECONDS))
