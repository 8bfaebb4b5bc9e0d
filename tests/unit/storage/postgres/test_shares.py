"""The connections of one node under a row that stays locked: who waits for it, and who does not."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.storage.postgres.store import PostgresStore
from tests.support.examples import ALICE, BOB
from tests.support.limits import WAIT_SECONDS

MORE_THAN_ALL_CONNECTIONS = 24


async def append_for_alice(tx: Transaction) -> Any:
    return await tx.events.reserve_seqs(ALICE, 1)


async def append_for_bob(tx: Transaction) -> Any:
    return await tx.events.reserve_seqs(BOB, 1)


@asynccontextmanager
async def locked_log(connection: "asyncpg.Connection[asyncpg.Record]", principal: Principal) -> AsyncGenerator[None]:
    """Another process has locked the log, and does not go on."""
    await connection.execute("INSERT INTO log_heads (principal, seq) VALUES ($1, 0)", principal)
    async with connection.transaction():
        await connection.execute("SELECT 1 FROM log_heads WHERE principal = $1 FOR UPDATE", principal)
        yield


async def test_units_of_one_principal_that_wait_for_a_locked_row_leave_connections_to_all_others(
    store: PostgresStore, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    async with asyncio.timeout(WAIT_SECONDS), locked_log(admin, ALICE):
        waiting = [
            asyncio.create_task(store.write_for(ALICE, append_for_alice)) for _ in range(MORE_THAN_ALL_CONNECTIONS)
        ]
        await asyncio.sleep(0)

        await store.write_for(BOB, append_for_bob)
        await store.write(append_for_bob)
        await store.write_heartbeat(append_for_bob)

        assert not any(task.done() for task in waiting)
    await asyncio.gather(*waiting)


async def test_the_services_own_units_that_wait_for_a_principals_row_leave_connections_to_the_other_principals(
    store: PostgresStore, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    async with asyncio.timeout(WAIT_SECONDS), locked_log(admin, ALICE):
        waiting = [
            *(asyncio.create_task(store.write(append_for_alice)) for _ in range(MORE_THAN_ALL_CONNECTIONS)),
            *(asyncio.create_task(store.write_for(ALICE, append_for_alice)) for _ in range(MORE_THAN_ALL_CONNECTIONS)),
        ]
        await asyncio.sleep(0)

        await store.write_for(BOB, append_for_bob)
        await store.write_heartbeat(append_for_bob)

        assert not any(task.done() for task in waiting)
    await asyncio.gather(*waiting)
