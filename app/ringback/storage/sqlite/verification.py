"""Challenges and proofs of callback URLs, as rows."""

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from ringback.domain.clock import from_epoch_milliseconds, seconds
from ringback.domain.ids import WebhookId
from ringback.domain.principal import Principal
from ringback.domain.verification import RATE_SECONDS, Asked, Challenge
from ringback.storage.queries import load
from ringback.storage.sqlite.columns import from_instant, to_instant
from ringback.storage.sqlite.database import Statements

_SQL: Final = load("ringback.storage.sqlite", "sql/verification.sql")


class SqliteChallenges:
    """Implements `domain.verification.ChallengeRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def put(self, challenge: Challenge) -> None:
        self._sql.change(
            "put",
            webhook_id=challenge.webhook_id,
            principal=challenge.principal,
            url=challenge.url,
            origin=challenge.origin,
            attempts=challenge.attempts,
            due_at=from_instant(challenge.due_at),
            token=challenge.token,
        )

    async def get(self, webhook_id: WebhookId) -> Challenge | None:
        row = self._sql.one("get", webhook_id=webhook_id)
        return None if row is None else _to_challenge(row)

    async def due(self, *, now: datetime, limit: int) -> Sequence[Challenge]:
        return [_to_challenge(row) for row in self._sql.all("due", now=from_instant(now), limit=limit)]

    async def next_due(self) -> datetime | None:
        (row,) = self._sql.all("next_due")
        return to_instant(row["due_at"])

    async def drop(self, webhook_id: WebhookId) -> None:
        self._sql.change("drop", webhook_id=webhook_id)

    async def asked(self, *, origin: str | None = None, principal: Principal | None = None, now: datetime) -> Asked:
        (row,) = self._sql.all(
            "asked_of_principal" if origin is None else "asked_of_origin",
            key=principal if origin is None else origin,
            since=from_instant(now - seconds(RATE_SECONDS)),
        )
        return Asked(sent=row["sent"], waiting=row["waiting"], first_at=to_instant(row["first_at"]))

    async def note(self, challenge: Challenge, *, now: datetime) -> None:
        self._sql.change("note", origin=challenge.origin, principal=challenge.principal, now=from_instant(now))

    async def forget(self, *, older_than: datetime, limit: int) -> int:
        return self._sql.change("forget", older_than=from_instant(older_than), limit=limit)


class SqliteProofs:
    """Implements `domain.verification.ProofRows`."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._sql = Statements(connection, _SQL)

    async def proven_at(self, principal: Principal, url: str) -> datetime | None:
        row = self._sql.one("proven_at", principal=principal, url=url)
        return None if row is None else from_epoch_milliseconds(row["proven_at"])

    async def save(self, principal: Principal, url: str, *, now: datetime) -> None:
        self._sql.change("save", principal=principal, url=url, now=from_instant(now))

    async def remove(self, *, older_than: datetime, limit: int) -> int:
        return self._sql.change("remove", older_than=from_instant(older_than), limit=limit)


def _to_challenge(row: sqlite3.Row) -> Challenge:
    return Challenge(
        webhook_id=row["webhook_id"],
        principal=row["principal"],
        url=row["url"],
        origin=row["origin"],
        attempts=row["attempts"],
        due_at=from_epoch_milliseconds(row["due_at"]),
        token=row["token"],
    )
