"""A durable inbox: a callback is acknowledged once it is in a SQLite file, and handled from there."""

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from ringback.receiver.inbox_file import InboxFile, InboxLimits, StoredBody, StoredMessage

PENDING_MESSAGES_MAX: Final = 10_000
"""Messages that wait for their handlers: as many as Ringback holds for one webhook. With more, the sender gets 503."""
PENDING_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of these messages: a thousand of the largest size."""
REMEMBERED_MESSAGES_MAX: Final = 100_000
"""Ended messages whose repetition is recognised: some 20 MB."""
REMEMBERED_SECONDS: Final = 14 * 86_400.0
"""How long they are remembered: Ringback keeps events, and can replay them, for 14 days."""

COMMITTED_TOGETHER_MAX: Final = 64
"""Writes in one commit: 18 MB of the largest bodies, and more than Ringback's 32 attempts at once."""

T = TypeVar("T")


class SQLiteInbox:
    """The inbox of one `ReceiverApp`, in one file that belongs to one process at a time.

    A callback whose handler fails is handled again, after 1 s, 2 s, 4 s … 5 minutes, and given up after 4 days. Until then,
    later callbacks of its session wait. The file is readable by its owner only, because callbacks contain resume tokens.
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
        self._path = Path(path)
        self._limits = InboxLimits(
            pending_max=pending_max,
            pending_bytes_max=pending_bytes_max,
            remembered_max=remembered_max,
            remembered_seconds=remembered_seconds,
        )
        self._thread: ThreadPoolExecutor | None = None
        self._file: InboxFile | None = None
        self._writes: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._writes_wait = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None

    async def open(self, *, now: float) -> None:
        """Open the file, or make it. Raises `InboxUnavailable`. `ReceiverApp` calls it."""
        if self._thread is not None:
            raise RuntimeError("This inbox is open already: each ReceiverApp needs an inbox of its own.")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ringback-inbox")  # one: SQLite has one writer
        try:
            self._file = await self._run(lambda: InboxFile(self._path, self._limits))
            self._writer = asyncio.create_task(self._commit_writes())
            await self._write(lambda: self._opened.prune(now))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Commit the writes that wait, and close the file."""
        if self._thread is None:
            return
        try:
            await self._end_writer()
        finally:
            thread, file = self._thread, self._file
            self._thread = self._file = self._writer = None
            try:
                if file is not None:
                    await asyncio.get_running_loop().run_in_executor(thread, file.close)
            finally:
                thread.shutdown(wait=False)

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

        The message is on disk when this returns. Raises `InboxFull`.
        """
        return await self._write(
            lambda: self._opened.add(
                message_id,
                scope,
                subscription_id=subscription_id,
                order_key=order_key,
                body=body,
                cursor=cursor,
                now=now,
            )
        )

    async def record_end(self, number: int, *, given_up: bool = False, keep_body: bool, now: float) -> None:
        await self._write(lambda: self._opened.record_end(number, given_up=given_up, keep_body=keep_body, now=now))

    async def drop_bodies(self, numbers: Sequence[int]) -> None:
        await self._write(lambda: self._opened.drop_bodies(numbers))

    async def save_cursor(self, cursor: str) -> None:
        await self._write(lambda: self._opened.save_cursor(cursor))

    async def read_pending(self) -> list[StoredMessage]:
        return await self._run(self._opened.read_pending)

    async def read_body(self, number: int) -> StoredBody:
        return await self._run(lambda: self._opened.read_body(number))

    async def read_waitable(self, limit: int) -> list[int]:
        return await self._run(lambda: self._opened.read_waitable(limit))

    async def read_cursor(self) -> str | None:
        return await self._run(self._opened.read_cursor)

    @property
    def _opened(self) -> InboxFile:
        if self._file is None:
            raise RuntimeError("The inbox is closed.")
        return self._file

    async def _write(self, work: Callable[[], T]) -> T:
        """The result of the work, once it is on disk."""
        if self._writer is None:
            raise RuntimeError("The inbox is closed.")
        written: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._writes.append((work, written))
        self._writes_wait.set()
        return await written

    async def _end_writer(self) -> None:
        if self._writer is None:
            return
        try:
            with suppress(sqlite3.Error):
                await self._write(lambda: None)
        finally:
            self._writer.cancel()
            await asyncio.wait([self._writer])

    async def _commit_writes(self) -> None:
        """Commit the writes in their order: while one commit waits for the disk, the next ones gather."""
        while True:
            await self._writes_wait.wait()
            batch = [self._writes.popleft() for _ in range(min(len(self._writes), COMMITTED_TOGETHER_MAX))]
            if not self._writes:
                self._writes_wait.clear()
            works = [work for work, _ in batch]
            try:
                outcomes = await self._run(partial(self._opened.commit_together, works))
            except Exception as error:  # noqa: BLE001 - it belongs to those who wait for the commit
                outcomes = [error] * len(batch)
            for (_, written), outcome in zip(batch, outcomes, strict=True):
                _set_outcome(written, outcome)

    async def _run(self, work: Callable[[], T]) -> T:
        """Run it in the inbox's thread, because a commit waits for the disk."""
        if self._thread is None:
            raise RuntimeError("The inbox is closed.")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _set_outcome(written: asyncio.Future[Any], outcome: Any) -> None:
    if written.done():  # its waiter was cancelled
        return
    if isinstance(outcome, Exception):
        written.set_exception(outcome)
    else:
        written.set_result(outcome)
