"""Reading, opening and closing a store."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.storage.sqlite.store import SqliteStore
from ringback.storage.sqlite.transaction import SqliteTransaction
from tests.support.examples import ALICE

LOG_BYTES_MAX: Final = 64 * 1024 * 1024


async def reserve(tx: Transaction) -> int:
    return await tx.events.reserve_seqs(ALICE, 1)


async def head(store: SqliteStore) -> int:
    return await store.read(lambda tx: tx.event_log.get_head(ALICE))


async def test_a_read_that_waits_or_writes_fails(store: SqliteStore) -> None:
    async def waiting(tx: Transaction) -> None:
        await tx.event_log.get_head(ALICE)
        await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="never inside"):
        await store.read(waiting)
    with pytest.raises(StoreUnavailable, match="readonly"):
        await store.read(reserve)

    assert await head(store) == 0


async def test_a_log_that_grew_beside_a_long_reader_is_cut_when_it_begins_anew(store: SqliteStore, path: Path) -> None:
    """A backup is such a reader. Its disk must not stay full until the service stops."""
    log = path.with_name(f"{path.name}-wal")
    with closing(sqlite3.connect(path, isolation_level=None)) as backup:
        backup.execute("BEGIN")
        backup.execute("SELECT count(*) FROM calls").fetchall()
        await store.write(write_much)
        await store.write(write_much)
        assert log.stat().st_size > 2 * LOG_BYTES_MAX

    async with asyncio.timeout(60):  # the checkpointer may be copying: then this commit leaves the log to the next one
        while count_bytes(log) > LOG_BYTES_MAX:
            await store.write(reserve)


def count_bytes(path: Path) -> int:
    return path.stat().st_size


async def write_much(tx: Transaction) -> None:
    assert isinstance(tx, SqliteTransaction)
    await tx.write_probe.write_probe_row()
    tx.connection.execute("UPDATE write_probe SET filler = zeroblob(?)", [LOG_BYTES_MAX])


async def test_closing_finishes_waiting_units_and_refuses_later_ones(store: SqliteStore) -> None:
    writing = [asyncio.create_task(store.write(reserve)) for _ in range(300)]
    await asyncio.sleep(0)

    await store.close()

    assert [task.result() for task in writing] == list(range(1, 301))
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.write(reserve)
    with pytest.raises(StoreUnavailable, match="not open"):
        await head(store)
