"""Numbered migrations, each applied once, in order."""

from datetime import datetime
from importlib import resources

from ringback.storage.postgres.driver import Connection


async def migrate(connection: Connection, *, now: datetime) -> None:
    """Apply the missing migrations."""
    del now
    folder = resources.files("ringback.storage.postgres") / "migrations"
    if not await connection.fetch("SELECT 1 FROM pg_class WHERE relname = 'calls'"):
        for file in sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name):
            await connection.execute(file.read_text(encoding="utf-8"))
