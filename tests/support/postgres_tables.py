"""The tables of an empty PostgreSQL database, by the product's own migrations."""

from ringback.storage.postgres.migrator import migrate_database


async def create_tables(url: str) -> None:
    await migrate_database(url)
