"""Verification of callback URLs: the challenges that are open, those that were sent, and the URLs that are proven."""

from collections.abc import Sequence
from datetime import datetime

from ringback.domain.clock import from_epoch_milliseconds, seconds
from ringback.domain.ids import WebhookId
from ringback.domain.principal import Principal
from ringback.domain.verification import CHALLENGE_WINDOW_SECONDS, Challenge, RecentChallenges
from ringback.storage.rows.columns import RECORDS, column_to_instant, instant_to_column
from ringback.storage.rows.unit import SqlRows


class SqlChallenges(SqlRows, noun="verification"):
    """Implements `domain.verification.ChallengeRows`."""

    async def save(self, challenge: Challenge) -> None:
        await self._sql.execute("save_challenge", **RECORDS.challenge.encode(challenge))

    async def get(self, webhook_id: WebhookId) -> Challenge | None:
        return await self._sql.fetch_record("get_challenge", RECORDS.challenge, webhook_id=webhook_id)

    async def list_due(self, *, now: datetime, limit: int) -> Sequence[Challenge]:
        await self._sql.execute("lock_due")
        return await self._sql.fetch_records(
            "due_challenges", RECORDS.challenge, now=instant_to_column(now), limit=limit
        )

    async def next_due_at(self) -> datetime | None:
        (row,) = await self._sql.fetch_all("next_due")
        return column_to_instant(row["due_at"])

    async def remove(self, webhook_id: WebhookId) -> None:
        await self._sql.execute("remove_challenge", webhook_id=webhook_id)

    async def count_recent(
        self, *, origin: str | None = None, principal: Principal | None = None, now: datetime
    ) -> RecentChallenges:
        since = instant_to_column(now - seconds(CHALLENGE_WINDOW_SECONDS))
        if origin is None:
            rows = await self._sql.fetch_all("recent_of_principal", key=principal, since=since)
        elif principal is None:
            rows = await self._sql.fetch_all("recent_of_origin", key=origin, since=since)
        else:
            rows = await self._sql.fetch_all("recent_of_pair", origin=origin, principal=principal, since=since)
        (row,) = rows
        return RecentChallenges(
            sent_count=row["sent"], waiting_count=row["waiting"], first_sent_at=column_to_instant(row["first_at"])
        )

    async def record_sent(self, challenge: Challenge, *, now: datetime) -> None:
        await self._sql.execute(
            "record_sent", origin=challenge.origin, principal=challenge.principal, now=instant_to_column(now)
        )

    async def remove_sent(self, *, cutoff: datetime, limit: int) -> int:
        return await self._sql.execute("remove_sent", older_than=instant_to_column(cutoff), limit=limit)


class SqlSentChallenges(SqlRows, noun="verification"):
    """Implements `domain.verification.SentChallengeRows`."""

    async def lock(self) -> None:
        await self._sql.execute("lock_due")

    async def record_answered(self, origin: str, principal: Principal) -> None:
        await self._sql.execute("record_answered", origin=origin, principal=principal)


class SqlProofs(SqlRows, noun="verification"):
    """Implements `domain.verification.ProofRows`."""

    async def get_proven_at(self, principal: Principal, url: str) -> datetime | None:
        row = await self._sql.fetch_one("proven_at", principal=principal, url=url)
        return None if row is None else from_epoch_milliseconds(row["proven_at"])

    async def save(self, principal: Principal, url: str, *, now: datetime) -> None:
        await self._sql.execute("save_proof", principal=principal, url=url, now=instant_to_column(now))

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        return await self._sql.execute("remove_proofs", older_than=instant_to_column(cutoff), limit=limit)
