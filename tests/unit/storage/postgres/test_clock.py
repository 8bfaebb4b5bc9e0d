"""All nodes compare times by the database's clock, also one whose own clock is wrong."""

from datetime import datetime, timedelta

import asyncpg

from ringback.domain.ports import Transaction
from ringback.storage.postgres.store import PostgresStore
from tests.support.clock import WallClockSteps
from tests.support.stores import make_sealer

HOUR = timedelta(hours=1)
EXACT = timedelta(seconds=5)
"""The duration of a test, on a machine with busy cores."""


async def read_now(tx: Transaction) -> datetime:
    return tx.now()


async def test_a_node_whose_clock_is_an_hour_wrong_compares_times_as_the_others(
    url: str, admin: "asyncpg.Connection[asyncpg.Record]"
) -> None:
    clock = WallClockSteps(follows_database=True)
    store = PostgresStore(url, clock=clock, sealer=make_sealer())

    await store.open()
    try:
        database_time = await admin.fetchval("SELECT clock_timestamp()")

        assert abs(await store.write(read_now) - database_time) < EXACT
        assert abs(clock.wall_time() - database_time) < EXACT
        clock.step(HOUR.total_seconds())  # from now on the machine's clock is not read
        assert abs(await store.read(read_now) - database_time) < EXACT
    finally:
        await store.close()
