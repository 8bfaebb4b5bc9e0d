"""Reading, opening and closing a store."""

import asyncio

import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.storage.sqlite.store import SqliteStore
from tests.support.examples import ALICE


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


async def test_closing_finishes_waiting_units_and_refuses_later_ones(store: SqliteStore) -> None:
    writing = [asyncio.create_task(store.write(reserve)) for _ in range(300)]
    await asyncio.sleep(0)

    await store.close()

    assert [task.result() for task in writing] == list(range(1, 301))
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.write(reserve)
    with pytest.raises(StoreUnavailable, match="not open"):
        await head(store)
