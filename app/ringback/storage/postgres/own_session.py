"""Refuses a pooler that gives a connection another session of PostgreSQL after each transaction.

Such a pooler loses the settings that every unit relies on, and notifications, without an error. Two connections show it: one
marks its session, the other one holds a session in a transaction, and then the mark of the first one is gone.

    listener   SET mark ─────────────────────────────▶ reads its mark, in its own session
    other                 SET no mark ─▶ BEGIN ──────────────────────────────────────────▶ ROLLBACK
"""

import secrets
from typing import Final

from ringback.domain.errors import StoreUnavailable
from ringback.storage.postgres.driver import Connection
from ringback.storage.postgres.errors import SESSIONS_NOT_KEPT
from ringback.storage.postgres.statements import load_sql

_SQL: Final = load_sql("session")


async def require_own_session(listener: Connection, other: Connection) -> None:
    """Raise `StoreUnavailable` if the session of the listener is not its own."""
    mark = secrets.token_hex(8)
    await listener.fetch(_SQL["mark_session"].writing, mark)
    await other.fetch(_SQL["mark_session"].writing, "")
    await other.execute(_SQL["begin_reading"].writing)
    await other.fetch(_SQL["session_mark"].writing)
    try:
        (found,) = await listener.fetch(_SQL["session_mark"].writing)
    finally:
        await other.execute(_SQL["rollback"].writing)
    if found["mark"] != mark:
        raise StoreUnavailable(SESSIONS_NOT_KEPT, needs_operator=True)
