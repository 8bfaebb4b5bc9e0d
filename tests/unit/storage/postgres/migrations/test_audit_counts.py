"""Entries of the audit log that older code has written to a PostgreSQL database, or still writes, are counted."""

from collections.abc import Mapping, Sequence

from ringback.storage.postgres.migrator import load_migrations, migrate_database
from tests.support.filled_postgres import Connection

OLDER = [migration for migration in load_migrations() if migration.number < 29]


async def append(connection: Connection, owners: Sequence[str | None]) -> None:
    statement = (
        "INSERT INTO audit_entries (at, surface, operation, owner) SELECT 1, 'rest', 'test_webhook', unnest($1::text[])"
    )
    await connection.execute(statement, owners)


async def count(connection: Connection) -> Mapping[str, int]:
    rows = await connection.fetch("SELECT owner, sum(entries)::bigint AS entries FROM audit_counts GROUP BY owner")
    return {row["owner"]: row["entries"] for row in rows}


async def test_entries_of_before_and_of_older_code_are_counted_until_they_are_removed(
    url: str, connection: Connection
) -> None:
    await migrate_database(url, OLDER)
    await append(connection, ["alice", "alice", "bob", None])
    await migrate_database(url)
    assert await count(connection) == {"alice": 2, "bob": 1}

    await migrate_database(url, OLDER)  # raises if that code may not run on it
    await append(connection, ["alice", None])
    await connection.execute("DELETE FROM audit_entries WHERE owner = 'bob'")

    assert await count(connection) == {"alice": 3}
