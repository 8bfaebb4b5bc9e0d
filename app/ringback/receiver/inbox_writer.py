"""Runs an inbox's file in a thread of its own, and commits together what is written at the same time."""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from ringback.receiver.inbox_file import InboxFile

COMMITTED_TOGETHER_MAX: Final = 64
"""Writes in one commit: 18 MB of the largest bodies, and more than Ringback's 32 attempts at once."""

T = TypeVar("T")


class InboxClosed(RuntimeError):
    """The inbox is closed, or is being closed."""


class InboxWriter:
    """Every method runs its work in the inbox's thread, because a commit waits for the disk."""

    def __init__(self, open_file: Callable[[], InboxFile]) -> None:
        self._open_file = open_file
        self._thread: ThreadPoolExecutor | None = None
        self._opening: Future[InboxFile] | None = None
        self._file: InboxFile | None = None
        self._writes: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._writes_wait = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._process_id = os.getpid()

    async def open(self, *, now: float) -> None:
        """Open the file, and forget what is too old. Raises what `open_file` raises."""
        if self._thread is not None:
            self._require_own()
            raise RuntimeError("This inbox is open already: each ReceiverApp needs an inbox of its own.")
        self._process_id = os.getpid()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ringback-inbox")  # one: SQLite has one writer
        self._is_closing = False
        try:
            self._opening = self._thread.submit(self._open_file)
            self._file = await asyncio.wrap_future(self._opening)
            self._task = asyncio.create_task(self._commit_writes())
            await self.write(lambda file: file.prune(now))
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Commit the writes that wait, and close the file. Later writes raise `InboxClosed`."""
        if self._thread is None or not self._is_own():
            return
        self._is_closing = True
        try:
            await self._end_commits()
        finally:
            await self._close_file()

    async def write(self, work: Callable[[InboxFile], T]) -> T:
        """The result of the work, once it is on disk. Work that raises has no effect.

        Raises `InboxClosed`: the work has no effect, unless the end was cancelled while it was being committed.
        """
        self._require_own()
        if self._task is None or self._is_closing:
            raise InboxClosed("The inbox is closed.")
        written: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._writes.append((partial(self._with_file, work), written))
        self._writes_wait.set()
        return await written

    async def read(self, work: Callable[[InboxFile], T]) -> T:
        self._require_own()
        return await self._run(partial(self._with_file, work))

    def _is_own(self) -> bool:
        return self._thread is None or self._process_id == os.getpid()

    def _require_own(self) -> None:
        """A forked child has a copy of this object, without the thread: it would wait for ever. Raises `InboxClosed`."""
        if not self._is_own():
            raise InboxClosed("This inbox belongs to the process that opened it. Open one of its own here.")

    def _with_file(self, work: Callable[[InboxFile], T]) -> T:
        return work(self._opened)

    @property
    def _opened(self) -> InboxFile:
        if self._file is None:
            raise InboxClosed("The inbox is closed.")
        return self._file

    async def _close_file(self) -> None:
        """A cancelled end waits no longer, and the thread closes the file."""
        thread, opening = self._thread, self._opening
        self._thread = self._opening = self._file = self._task = None
        if thread is not None:  # None: another end was quicker
            closing = thread.submit(_close_opened, opening)
            thread.shutdown(wait=False)
            await asyncio.shield(asyncio.wrap_future(closing))

    async def _end_commits(self) -> None:
        if self._task is None:
            return
        self._writes_wait.set()
        try:
            await asyncio.wait([self._task])
        finally:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _commit_writes(self) -> None:
        """Commit the writes in their order: while one commit waits for the disk, the next ones gather."""
        batch: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        try:
            while self._writes or not self._is_closing:
                await self._writes_wait.wait()
                batch = [self._writes.popleft() for _ in range(min(len(self._writes), COMMITTED_TOGETHER_MAX))]
                if not self._writes and not self._is_closing:
                    self._writes_wait.clear()
                await self._commit_batch(batch)
        finally:  # after a cancelled end, those who wait for their writes would wait for ever
            for _, written in [*batch, *self._writes]:
                _set_outcome(written, InboxClosed("The inbox is closed."))
            self._writes.clear()

    async def _commit_batch(self, batch: Sequence[tuple[Callable[[], Any], asyncio.Future[Any]]]) -> None:
        works = [work for work, _ in batch]
        try:
            outcomes = await self._run(partial(self._opened.commit_together, works))
        except Exception as error:  # noqa: BLE001 - it belongs to those who wait for the commit
            outcomes = [error] * len(batch)
        for (_, written), outcome in zip(batch, outcomes, strict=True):
            _set_outcome(written, outcome)

    async def _run(self, work: Callable[[], T]) -> T:
        if self._thread is None:
            raise InboxClosed("The inbox is closed.")
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


def _close_opened(opening: Future[InboxFile] | None) -> None:
    """Runs in the inbox's thread, after the opening. A file whose caller was cancelled meanwhile is closed, too."""
    if opening is not None and not opening.cancelled() and opening.exception() is None:
        opening.result().close()


def _set_outcome(written: asyncio.Future[Any], outcome: Any) -> None:
    if written.done():  # its waiter was cancelled
        return
    if isinstance(outcome, Exception):
        written.set_exception(outcome)
    else:
        written.set_result(outcome)
