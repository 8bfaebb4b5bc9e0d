"""A durable inbox: a callback is acknowledged once it is in a SQLite file, and handled from there."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from ringback.private_sqlite import FileInUse, FileUnusable, open_private_file
from ringback.receiver.inbox_file import InboxFile, InboxLimits, NewMessage, StoredBody, StoredMessage
from ringback.receiver.inbox_schema import RECEIVER_FORMAT
from ringback.receiver.inbox_writer import InboxWriter

LOCK_WAIT_SECONDS: Final = 5.0
"""How long a starting process waits for the file of a process that is ending."""
PENDING_MESSAGES_MAX: Final = 10_000
"""Messages that wait for their handlers: as many as Ringback holds for one webhook. With more, the sender gets 503."""
PENDING_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of these messages: a thousand of the largest size."""
REMEMBERED_MESSAGES_MAX: Final = 100_000
"""Ended messages whose repetition is recognised: some 20 MB."""
REMEMBERED_SECONDS: Final = 14 * 86_400.0
"""How long they are remembered: Ringback keeps events, and can replay them, for 14 days."""


class InboxUnavailable(Exception):
    """The inbox's file cannot be used. The text says why, and what to do."""


class SQLiteInbox:
    """The inbox of one `ReceiverApp`, in one file that belongs to one process at a time.

    A callback whose handler fails is handled again, after 1 s, 2 s, 4 s … 5 minutes, and given up after 4 days, but not before
    this process has tried for an hour. Until then, later callbacks of its session wait. The file is readable by its owner only,
    because callbacks contain resume tokens.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        pending_max: int = PENDING_MESSAGES_MAX,
        pending_bytes_max: int = PENDING_BYTES_MAX,
        remembered_max: int = REMEMBERED_MESSAGES_MAX,
        remembered_seconds: float = REMEMBERED_SECONDS,
    ) -> None:
        limits = InboxLimits(
            pending_max=pending_max,
            pending_bytes_max=pending_bytes_max,
            remembered_max=remembered_max,
            remembered_seconds=remembered_seconds,
        )
        self._writer = InboxWriter(partial(_open_file, Path(path), limits))

    async def open(self, *, now: float) -> None:
        """Open the file, or make it. Raises `InboxUnavailable`. `ReceiverApp` calls it."""
        await self._writer.open(now=now)

    async def close(self) -> None:
        """Commit the writes that wait, and close the file."""
        await self._writer.close()

    async def add(
        self,
        message_id: str,
        scope: str,
        *,
        subscription_id: str | None = None,
        order_key: str,
        body: bytes,
        cursor: str | None,
        now: float,
    ) -> int | None:
        """Store a message and return its number, in the order of arrival; None if it was stored before in this scope.

        `cursor` is saved if there is none yet. The message is on disk when this returns. Raises `InboxFull`.
        """
        message = NewMessage(
            message_id=message_id,
            scope=scope,
            subscription_id=subscription_id,
            order_key=order_key,
            cursor=cursor,
            body=body,
        )
        return await self._writer.write(lambda file: file.add(message, now=now, start_cursor=cursor))

    async def record_end(self, number: int, *, given_up: bool = False, keep_body: bool, now: float) -> None:
        await self._writer.write(lambda file: file.record_end(number, given_up=given_up, keep_body=keep_body, now=now))

    async def drop_bodies(self, numbers: Sequence[int]) -> None:
        await self._writer.write(lambda file: file.drop_bodies(numbers))

    async def save_cursor(self, cursor: str) -> None:
        await self._writer.write(lambda file: file.save_cursor(cursor))

    async def read_pending(self) -> list[StoredMessage]:
        return await self._writer.read(lambda file: file.read_pending())

    async def read_body(self, number: int) -> StoredBody:
        return await self._writer.read(lambda file: file.read_body(number))

    async def read_waitable(self, limit: int) -> list[int]:
        return await self._writer.read(lambda file: file.read_waitable(limit))

    async def read_cursor(self) -> str | None:
        return await self._writer.read(lambda file: file.read_cursor())


def _open_file(path: Path, limits: InboxLimits) -> InboxFile:
    try:
        connection = open_private_file(path, RECEIVER_FORMAT, busy_seconds=LOCK_WAIT_SECONDS, is_exclusive=True)
    except FileInUse:
        raise InboxUnavailable(
            f"Another process uses the inbox {path}. An inbox belongs to one process: run one worker, or give each its own."
        ) from None
    except FileUnusable as error:
        raise InboxUnavailable(f"{error} Choose another file for the inbox.") from error
    return InboxFile(connection, limits)
