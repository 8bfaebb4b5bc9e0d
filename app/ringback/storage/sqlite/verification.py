"""Challenges and proofs of callback URLs, as rows."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from ringback.domain.clock import from_epoch_milliseconds, seconds
from ringback.domain.ids import WebhookId
from ringback.domain.principal import Principal
from ringback.domain.verification import CHALLENGE_WINDOW_SECONDS, Challenge, RecentChallenges
from ringback.storage.codec import column_to_instant, instant_to_column
from ringback.storage.queries import load_statements
from ringback.storage.sqlite.database import Statements

_SQL: Final = load_statements("ringback.storage.sqlite", "sql/verification.sql")


class SqliteChallenges:
    """Implements `domain.verification.ChallengeRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def save(self, challenge: Challenge) -> None:
        self._sql.execute(
            "put",
            webhook_id=challenge.webhook_id,
            principal=challenge.principal,
            url=challenge.url,
            origin=challenge.origin,
            attempts=challenge.attempts,
            due_at=instant_to_column(challenge.due_at),
            token=challenge.token,
        )

    async def get(self, webhook_id: WebhookId) -> Challenge | None:
        row = self._sql.fetch_one("get", webhook_id=webhook_id)
        return None if row is None else _row_to_challenge(row)

    async def list_due(self, *, now: datetime, limit: int) -> Sequence[Challenge]:
        return [_row_to_challenge(row) for row in self._sql.fetch_all("due", now=instant_to_column(now), limit=limit)]

    async def next_due_at(self) -> datetime | None:
        (row,) = self._sql.fetch_all("next_due")
        return column_to_instant(row["due_at"])

    async def remove(self, webhook_id: WebhookId) -> None:
        self._sql.execute("drop", webhook_id=webhook_id)

    async def count_recent(
        self, *, origin: str | None = None, principal: Principal | None = None, now: datetime
    ) -> RecentChallenges:
        (row,) = self._sql.fetch_all(
            "asked_of_principal" if origin is None else "asked_of_origin",
            key=principal if origin is None else origin,
            since=instant_to_column(now - seconds(CHALLENGE_WINDOW_SECONDS)),
        )
        return RecentChallenges(
            sent_count=row["sent"], waiting_count=row["waiting"], first_sent_at=column_to_instant(row["first_at"])
        )

    async def record_sent(self, challenge: Challenge, *, now: datetime) -> None:
        self._sql.execute("note", origin=challenge.origin, principal=challenge.principal, now=instant_to_column(now))

    async def remove_sent(self, *, cutoff: datetime, limit: int) -> int:
        return self._sql.execute("forget", older_than=instant_to_column(cutoff), limit=limit)


class SqliteProofs:
    """Implements `domain.verification.ProofRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def get_proven_at(self, principal: Principal, url: str) -> datetime | None:
        row = self._sql.fetch_one("proven_at", principal=principal, url=url)
        return None if row is None else from_epoch_milliseconds(row["proven_at"])

    async def save(self, principal: Principal, url: str, *, now: datetime) -> None:
        self._sql.execute("save", principal=principal, url=url, now=instant_to_column(now))

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        return self._sql.execute("remove", older_than=instant_to_column(cutoff), limit=limit)


def _row_to_challenge(row: sqlite3.Row) -> Challenge:
    return Challenge(
        webhook_id=row["webhook_id"],
        principal=row["principal"],
        url=row["url"],
        origin=row["origin"],
        attempts=row["attempts"],
        due_at=from_epoch_milliseconds(row["due_at"]),
        token=row["token"],
    )
