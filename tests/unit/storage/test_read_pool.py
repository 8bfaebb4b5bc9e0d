"""Scans run beside the event loop, on snapshots, in turns between principals, until the store closes."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.storage.sqlite.read_pool import READER_COUNT
from ringback.storage.sqlite.store import SqliteStore
from tests.support.examples import ALICE, BOB

HANG_SECONDS = 60.0
NEVER_ENDING_QUERY = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n) SELECT max(n) FROM n"


@dataclass
class BlockedScans:
    """Work that occupies its thread until the test releases it."""

    began: list[str] = field(default_factory=list[str])
    go_on: threading.Event = field(default_factory=threading.Event)

    def hold_scan(self, name: str) -> Callable[[Transaction], Awaitable[str]]:
        async def work(tx: Transaction) -> str:
            await tx.event_log.get_head(ALICE)
            self.began.append(name)
            assert self.go_on.wait(HANG_SECONDS)
            return name

        return work

    async def wait_until_held(self, count: int) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            while len(self.began) < count:  # noqa: ASYNC110 - it is a thread that adds to it
                await asyncio.sleep(0)


@pytest.fixture
async def gate(store: SqliteStore) -> AsyncGenerator[BlockedScans]:
    """Created after the store, so that no thread is occupied when the store closes."""
    gate = BlockedScans()
    yield gate
    gate.go_on.set()


def names(gate: BlockedScans, name: str) -> Callable[[Transaction], Awaitable[str]]:
    async def work(tx: Transaction) -> str:
        await tx.event_log.get_head(ALICE)
        gate.began.append(name)
        return name

    return work


async def reserve(tx: Transaction) -> int:
    return await tx.events.reserve_seqs(ALICE, 1)


async def head(tx: Transaction) -> int:
    return await tx.event_log.get_head(ALICE)


async def head_and_thread(tx: Transaction) -> tuple[int, int]:
    return await tx.event_log.get_head(ALICE), threading.get_ident()


def scanning(
    store: SqliteStore, principal: Principal | None, work: Callable[[Transaction], Awaitable[str]]
) -> asyncio.Task[str]:
    return asyncio.create_task(store.scan(principal, work))


async def test_a_scan_runs_in_another_thread_and_sees_what_was_committed(store: SqliteStore) -> None:
    await store.write(reserve)

    found, thread = await store.scan(ALICE, head_and_thread)

    assert found == 1
    assert thread != threading.get_ident()


async def test_a_scan_is_one_snapshot_despite_concurrent_writes(store: SqliteStore, gate: BlockedScans) -> None:
    async def twice(tx: Transaction) -> tuple[int, int]:
        first = await head(tx)
        gate.began.append("twice")
        assert gate.go_on.wait(HANG_SECONDS)
        return first, await head(tx)

    scan = asyncio.create_task(store.scan(ALICE, twice))
    await gate.wait_until_held(1)
    await store.write(reserve)
    gate.go_on.set()

    assert await scan == (0, 0)
    assert await store.scan(ALICE, head) == 1


async def test_a_scan_that_writes_or_waits_fails_and_leaves_its_connection_usable(store: SqliteStore) -> None:
    async def waiting(tx: Transaction) -> None:
        await head(tx)
        await asyncio.sleep(0)

    for _ in range(READER_COUNT + 1):
        with pytest.raises(StoreUnavailable, match="readonly"):
            await store.scan(ALICE, reserve)
        with pytest.raises(RuntimeError, match="never inside"):
            await store.scan(ALICE, waiting)

    assert await store.scan(ALICE, head) == 0


async def test_reads_and_writes_continue_while_every_thread_is_occupied(store: SqliteStore, gate: BlockedScans) -> None:
    scans = [scanning(store, ALICE, gate.hold_scan("held")) for _ in range(READER_COUNT)]
    await gate.wait_until_held(READER_COUNT)

    assert await store.write(reserve) == 1
    assert await store.read(head) == 1

    gate.go_on.set()
    assert await asyncio.gather(*scans) == ["held"] * READER_COUNT


async def test_a_principal_waits_for_one_scan_of_another_and_not_for_all_of_them(
    store: SqliteStore, gate: BlockedScans
) -> None:
    released = BlockedScans()
    held = [scanning(store, ALICE, gate.hold_scan("held")) for _ in range(READER_COUNT - 1)]
    await gate.wait_until_held(READER_COUNT - 1)
    held.append(scanning(store, ALICE, released.hold_scan("held")))
    await released.wait_until_held(1)
    crowd = [scanning(store, ALICE, names(released, "alice")) for _ in range(100)]
    await asyncio.sleep(0)
    lone = scanning(store, BOB, names(released, "bob"))
    await asyncio.sleep(0)
    released.go_on.set()  # one thread begins all of them, so the order in which they begin is the order of the turns
    await asyncio.gather(*crowd, lone)
    gate.go_on.set()
    await asyncio.gather(*held)

    assert released.began.index("bob") <= 2


async def test_a_caller_cancelled_before_its_turn_removes_its_scan(store: SqliteStore, gate: BlockedScans) -> None:
    held = [scanning(store, ALICE, gate.hold_scan("held")) for _ in range(READER_COUNT)]
    await gate.wait_until_held(READER_COUNT)
    cancelled = [scanning(store, ALICE, names(gate, "cancelled")) for _ in range(10)]
    await asyncio.sleep(0)
    for task in cancelled:
        task.cancel()
    await asyncio.wait(cancelled)
    gate.go_on.set()
    await asyncio.gather(*held)

    assert await store.scan(ALICE, names(gate, "after")) == "after"
    assert "cancelled" not in gate.began


async def test_a_caller_cancelled_during_its_scan_returns_the_connection(
    store: SqliteStore, gate: BlockedScans
) -> None:
    held = [scanning(store, ALICE, gate.hold_scan("held")) for _ in range(READER_COUNT)]
    await gate.wait_until_held(READER_COUNT)
    for task in held:
        task.cancel()
    await asyncio.wait(held)
    gate.go_on.set()

    scans = [scanning(store, BOB, names(gate, "bob")) for _ in range(3 * READER_COUNT)]
    assert await asyncio.gather(*scans) == ["bob"] * 3 * READER_COUNT


async def test_closing_interrupts_running_scans_and_refuses_waiting_ones(store: SqliteStore) -> None:
    began = threading.Barrier(READER_COUNT + 1)

    async def endless(tx: Transaction) -> None:
        connection = getattr(tx, "connection")  # noqa: B009 - no statement of the store runs for ever
        began.wait(HANG_SECONDS)
        connection.execute(NEVER_ENDING_QUERY)

    scans = [asyncio.create_task(store.scan(ALICE, endless)) for _ in range(READER_COUNT + 5)]
    await asyncio.to_thread(began.wait, HANG_SECONDS)

    async with asyncio.timeout(HANG_SECONDS):
        await store.close()
        results = await asyncio.gather(*scans, return_exceptions=True)

    assert [type(result) for result in results] == [StoreUnavailable] * len(scans)
    with pytest.raises(StoreUnavailable, match="not open"):
        await store.scan(ALICE, head)
    with suppress(StoreUnavailable):
        await store.read(head)
