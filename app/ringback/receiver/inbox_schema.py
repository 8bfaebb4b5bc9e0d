"""The tables of an inbox, and how the files of earlier versions come to them.

    messages   one row for each message: pending, or ended (handled or given up)
               body: while pending; after the end while a waiter or a later start may still need it
    settings   the place in the event log (`cursor`), and what else belongs to the file's owner

A receiver (`RECEIVER_FORMAT`) and the listener of `ringback listen` have the same tables, and each a mark of its own in the
file's header, so that neither opens the file of the other.
"""

from typing import Final

from ringback.private_sqlite import FileFormat
from ringback.receiver.deduplicator import FETCHED

APPLICATION_ID: Final = 0x52424B49
"""`RBKI` in ASCII: marks the file as the inbox of a receiver, for SQLite's `application_id`."""

_MESSAGES: Final = """
CREATE TABLE messages (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    message_id TEXT NOT NULL,
    scope TEXT NOT NULL,
    subscription_id TEXT,
    order_key TEXT NOT NULL,
    body BLOB,
    arrived_at REAL NOT NULL,
    ended_at REAL,
    given_up INTEGER NOT NULL DEFAULT 0,
    cursor TEXT,
    attempts INTEGER NOT NULL DEFAULT 0,
    last_error TEXT,
    UNIQUE (message_id, scope)
) STRICT;
CREATE INDEX messages_pending ON messages (number) WHERE ended_at IS NULL;
CREATE INDEX messages_ended ON messages (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX messages_waitable ON messages (number) WHERE ended_at IS NOT NULL AND body IS NOT NULL;
"""
_SETTINGS: Final = "CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;"
SCHEMA: Final = f"{_MESSAGES}{_SETTINGS}"


def _remake_messages(*, scope: str, subscription_id: str) -> str:
    return f"""
CREATE TABLE earlier AS SELECT * FROM messages;
DROP TABLE messages;
{_MESSAGES}
INSERT INTO messages (number, message_id, scope, subscription_id, order_key, body, arrived_at, ended_at, given_up)
    SELECT number, message_id, {scope}, {subscription_id}, order_key, body, arrived_at, ended_at, given_up FROM earlier;
DROP TABLE earlier;
"""  # noqa: S608 - constants


_UPGRADE_FROM_1: Final = _remake_messages(
    scope="subscription_id", subscription_id=f"nullif(nullif(subscription_id, ''), '{FETCHED}')"
)
"""In version 1 a message was known by the subscription of its header. With the callbacks of Ringback, that id is the scope."""
_UPGRADE_FROM_2: Final = f"""
{_remake_messages(scope="scope", subscription_id="subscription_id")}
{_SETTINGS}
INSERT INTO settings SELECT 'cursor', value FROM cursor;
DROP TABLE cursor;
"""  # noqa: S608 - constants
"""Version 3 has the columns and the settings of a listener."""
RECEIVER_FORMAT: Final = FileFormat(
    name="an inbox",
    application_id=APPLICATION_ID,
    version=3,
    schema=SCHEMA,
    upgrades={1: _UPGRADE_FROM_1, 2: _UPGRADE_FROM_2},
)
