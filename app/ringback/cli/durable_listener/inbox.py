"""The listener's SQLite file: the callbacks that it has read, the cursor after them, and the secret that signs forwards.

It is the inbox of `ringback.receiver`, used otherwise: the listener reads a log, so one transaction stores what it has read
with the place after it, and the reader pauses, instead of a sender, while too many callbacks wait.
"""

import math
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from ringback.cli.durable_listener.state_file import StateFileUnusable
from ringback.private_sqlite import FileFormat, FileUnusable, open_private_file
from ringback.receiver.inbox_file import InboxFile, InboxLimits, NewMessage
from ringback.receiver.inbox_schema import SCHEMA
from ringback.receiver.inbox_writer import InboxWriter

APPLICATION_ID: Final = 0x52424C4E
"""`RBLN`, in the header of the file: an SQLite file of another program is not changed."""
LOCK_WAIT_SECONDS: Final = 5.0
"""SQLite's default. The lock beside the file keeps other listeners away already."""
REMEMBERED_CALLBACKS_MAX: Final = 10_000
"""Handled callbacks whose ids stay, so that an event that the service sends again is recognised: about 1 MB."""
_SCOPE: Final = "log"
"""An event is once in the log, so all callbacks have one scope."""

_UPGRADE_FROM_1: Final = f"""
ALTER TABLE settings RENAME TO earlier_settings;
{SCHEMA}
INSERT INTO settings SELECT name, value FROM earlier_settings;
INSERT INTO messages (number, message_id, scope, order_key, body, arrived_at, ended_at, given_up, cursor, attempts, last_error)
    SELECT position, event_id, '{_SCOPE}', order_key, body, now,
           iif(state = 'waiting', NULL, now), state = 'given_up', cursor, attempts, last_error
    FROM inbox, (SELECT CAST(strftime('%s', 'now') AS REAL) AS now);
DROP TABLE inbox;
DROP TABLE earlier_settings;
"""  # noqa: S608 - constants
"""Version 1 had tables of its own, which did not say when a callback came and ended."""
_FORMAT: Final = FileFormat(
    name="the state of a listener",
    application_id=APPLICATION_ID,
    version=2,
    schema=SCHEMA,
    upgrades={1: _UPGRADE_FROM_1},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCallback:
    """A callback that is to be stored."""

    event_id: str
    order_key: str
    """Callbacks with the same key are handled one at a time."""
    cursor: str | None
    """The place after the event in the service's log."""
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingCallback:
    """A stored callback that no handler has taken. The body stays in the file until it is handled."""

    position: int
    event_id: str
    order_key: str
    attempts: int


class Inbox:
    def __init__(self, writer: InboxWriter, get_time: Callable[[], float]) -> None:
        self._writer = writer
        self._get_time = get_time

    async def read_setting(self, name: str) -> str | None:
        return await self._writer.read(lambda file: file.read_setting(name))

    async def write_settings(self, settings: Mapping[str, str]) -> None:
        """Write settings in one transaction."""
        await self._writer.write(lambda file: file.write_settings(settings))

    async def store(self, callbacks: Sequence[NewCallback], *, cursor: str | None) -> Sequence[WaitingCallback]:
        """Store callbacks and the cursor after them in one transaction. Returns those that were not stored before."""
        messages, now = [_to_message(callback) for callback in callbacks], self._get_time()
        numbers = await self._writer.write(lambda file: file.add_all(messages, cursor=cursor, now=now))
        return [
            WaitingCallback(position=number, event_id=stored.event_id, order_key=stored.order_key, attempts=0)
            for number, stored in zip(numbers, callbacks, strict=True)
            if number is not None
        ]

    async def list_waiting(self) -> Sequence[WaitingCallback]:
        """The waiting callbacks, oldest first."""
        return [
            WaitingCallback(
                position=stored.number, event_id=stored.message_id, order_key=stored.order_key, attempts=stored.attempts
            )
            for stored in await self._writer.read(lambda file: file.read_pending())
        ]

    async def read_body(self, position: int) -> bytes:
        return (await self._writer.read(lambda file: file.read_body(position))).body

    async def read_handled_cursor(self) -> str | None:
        """A cursor before which everything is handled or given up; None if there is none yet."""
        return await self._writer.read(lambda file: file.read_handled_cursor())

    async def mark_handled(self, position: int) -> None:
        """Record that the callback was handled. Its id stays; its body, with the resume token, is removed."""
        await self._record_end(position, is_handled=True)

    async def record_failure(self, position: int, reason: str) -> None:
        await self._writer.write(lambda file: file.record_failure(position, reason))

    async def mark_given_up(self, position: int) -> None:
        """Record that the callback is no longer tried. Its body stays, for `retry_given_up`."""
        await self._record_end(position, is_handled=False)

    async def retry_given_up(self) -> int:
        """Let the callbacks that were given up wait again. Returns their number."""
        return await self._writer.write(lambda file: file.retry_given_up())

    async def _record_end(self, position: int, *, is_handled: bool) -> None:
        now = self._get_time()
        await self._writer.write(
            lambda file: file.record_end(position, given_up=not is_handled, keep_body=not is_handled, now=now)
        )


@asynccontextmanager
async def open_inbox(path: Path) -> AsyncGenerator[Inbox]:
    """The inbox in this file, which is created if it is missing. Raises `StateFileUnusable`."""
    writer = InboxWriter(partial(_open_file, path))
    get_time = time.time  # noqa: TID251 - the command's clock
    await writer.open(now=get_time())
    try:
        yield Inbox(writer, get_time)
    finally:
        await writer.close()


def _open_file(path: Path) -> InboxFile:
    try:
        connection = open_private_file(path, _FORMAT, busy_seconds=LOCK_WAIT_SECONDS)
    except FileUnusable as error:
        raise StateFileUnusable(f"{error} Choose another --state.") from None
    limits = InboxLimits(
        pending_max=math.inf,  # the reader waits for room before it reads on
        pending_bytes_max=math.inf,
        remembered_max=REMEMBERED_CALLBACKS_MAX,
        remembered_seconds=math.inf,  # a laptop may be away for longer than the service keeps events
    )
    return InboxFile(connection, limits)


def _to_message(callback: NewCallback) -> NewMessage:
    return NewMessage(
        message_id=callback.event_id,
        scope=_SCOPE,
        order_key=callback.order_key,
        cursor=callback.cursor,
        body=callback.body,
    )
