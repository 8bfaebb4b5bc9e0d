"""Processes that open a SQLite database and end in a way that a test's own process cannot."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from ringback.domain.clock import SystemClock
from ringback.domain.ports import Transaction
from ringback.storage.sqlite.store import SqliteStore
from tests.support.examples import ALICE
from tests.support.limits import WAIT_SECONDS
from tests.support.processes import FORK_SERVER
from tests.support.stores import make_sealer

COMMITS = 7


def run_in_process(end: Callable[[SqliteStore, Path], Awaitable[None]], path: Path) -> int | None:
    """Open the database in a process of its own, and return the exit code of the process."""
    process = FORK_SERVER.Process(target=_run, args=(end, path))
    process.start()
    process.join(WAIT_SECONDS)
    return process.exitcode


def _run(end: Callable[[SqliteStore, Path], Awaitable[None]], path: Path) -> None:
    async def main() -> None:
        store = SqliteStore(path, clock=SystemClock(), sealer=make_sealer())
        await store.open(exclusive=True)
        await end(store, path)

    asyncio.run(main())


async def reserve(tx: Transaction) -> int:
    return await tx.events.reserve_seqs(ALICE, 1)


async def die_after_writing(store: SqliteStore, path: Path) -> None:
    """The last commits are in the write-ahead log alone."""
    del path
    for _ in range(COMMITS):
        await store.write(reserve)
    os.kill(os.getpid(), signal.SIGKILL)


async def close_after_a_restore(store: SqliteStore, path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()
        path.with_name(path.name + suffix).write_text("restored")
    await store.close()
