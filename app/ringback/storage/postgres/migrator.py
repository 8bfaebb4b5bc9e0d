"""Numbered migrations, each applied once, in order."""

from importlib import resources

from ringback.storage.postgres.driver import connect


async def migrate_database(url: str) -> None:
    """Apply the missing migrations."""
    folder = resources.files("ringback.storage.postgres") / "migrations"
    connection = await connect(url)
    try:
        if not await connection.fetch("SELECT 1 FROM pg_class WHERE relname = 'calls'"):
            for file in sorted(folder.iterdir(), key=lambda file: file.name):
                await connection.execute(file.read_text(encoding="utf-8"))
    finally:
        await connection.close()
