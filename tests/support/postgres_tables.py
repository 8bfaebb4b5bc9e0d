"""The tables of an empty PostgreSQL database, by the product's own migrations."""

from datetime import UTC, datetime

from ringback.storage.postgres.driver import connect
from ringback.storage.postgres.migrator import migrate


async def create_tables(url: str) -> None:
    connection = await connect(url)
    try:
        await migrate(connection, now=datetime.fromtimestamp(0, UTC))
    finally:
        await connection.close()
