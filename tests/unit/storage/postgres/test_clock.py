"""All nodes compare times by the database's clock, also one whose own clock is wrong, and by one time when it is set."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta
from typing import Any, cast

import asyncpg
import pytest

from ringback.domain.clock import SystemClock
from ringback.domain.ports import Transaction
from ringback.leadership import LEASE_SECONDS, Leadership
from ringback.storage.postgres.driver import Connection
from ringback.storage.postgres.shared_clock import follow_database_clock
from ringback.storage.postgres.store import PostgresStore
from tests.support.clock import START, FakeClock, WallClockSteps
from tests.support.engine import WAIT_SECONDS, wait_until
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


SETTABLE_CLOCK = """
CREATE SCHEMA settable;
CREATE TABLE settable.step (ahead interval NOT NULL);
INSERT INTO settable.step VALUES ('0 s');
CREATE FUNCTION settable.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS
    'SELECT pg_catalog.clock_timestamp() + ahead FROM settable.step';
"""
"""A clock of the server that the test sets. It stands in the place of the real one by the search path."""


class SettableServer:
    def __init__(self, url: str, admin: "asyncpg.Connection[asyncpg.Record]") -> None:
        separator = "&" if "?" in url else "?"
        self.url = f"{url}{separator}options=-csearch_path%3Dsettable,public,pg_catalog"
        self._admin = admin

    async def set_clock(self, ahead: timedelta) -> None:
        await self._admin.execute("UPDATE settable.step SET ahead = $1", ahead)

    def make_node(self) -> tuple[PostgresStore, SystemClock]:
        clock = SystemClock()
        return PostgresStore(self.url, clock=clock, sealer=make_sealer()), clock


@pytest.fixture
async def server(url: str, admin: "asyncpg.Connection[asyncpg.Record]") -> AsyncGenerator[SettableServer]:
    await admin.execute(SETTABLE_CLOCK)
    yield SettableServer(url, admin)
    await admin.execute("DROP SCHEMA settable CASCADE")


@pytest.mark.parametrize("step", [HOUR, -HOUR])
async def test_a_node_that_starts_after_a_step_of_the_database_s_clock_has_the_time_of_the_others(
    server: SettableServer, step: timedelta
) -> None:
    running, running_clock = server.make_node()
    await running.open()
    await server.set_clock(step)
    started, started_clock = server.make_node()
    starting = asyncio.create_task(started.open())
    connection = await asyncpg.connect(server.url)

    await follow_database_clock(running_clock, connection)  # as the node does every few seconds
    await starting

    assert abs(await started.write(read_now) - await running.write(read_now)) < EXACT
    assert abs(started_clock.wall_time() - running_clock.now() - step) < EXACT
    for each in (connection, started, running):
        await each.close()


@pytest.mark.parametrize(("step", "continued"), [(-HOUR, timedelta()), (HOUR, HOUR)])
async def test_the_first_node_after_a_step_back_continues_from_the_last_time_and_follows_a_step_forward(
    server: SettableServer, step: timedelta, continued: timedelta
) -> None:
    last, last_clock = server.make_node()
    await last.open()
    await last.close()
    await server.set_clock(step)

    first, first_clock = server.make_node()
    await first.open()

    assert abs(first_clock.now() - last_clock.now() - continued) < EXACT
    await first.close()


class SlowConnection:
    """A connection whose answers take two seconds of the clock."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]", clock: WallClockSteps) -> None:
        self._connection = connection
        self._clock = clock

    async def fetch(self, query: str, /, *args: Any) -> Any:
        self._clock.pass_time(2.0)
        return await self._connection.fetch(query, *args)


async def test_a_node_that_reads_the_database_s_clock_too_slowly_does_not_say_how_far_the_nodes_are_ahead(
    server: SettableServer,
) -> None:
    clock = WallClockSteps(follows_database=True)
    running = PostgresStore(server.url, clock=clock, sealer=make_sealer())
    await running.open()
    connection = await asyncpg.connect(server.url)
    saved = await connection.fetchrow("SELECT * FROM shared_clock")
    await server.set_clock(HOUR)

    await follow_database_clock(clock, cast("Connection", SlowConnection(connection, clock)))

    assert await connection.fetchrow("SELECT * FROM shared_clock") == saved
    await follow_database_clock(clock, cast("Connection", connection))
    assert await connection.fetchrow("SELECT * FROM shared_clock") != saved
    for each in (connection, running):
        await each.close()


async def test_a_duty_of_a_node_that_died_while_the_clock_was_far_ahead_goes_to_another_one_soon(
    store: PostgresStore, clock: FakeClock
) -> None:
    """Its lease would last for forty days."""
    far = START + timedelta(days=40)
    await store.write(lambda tx: tx.leaders.acquire("watch", owner="dead", until=far, now=far))
    has_duty, stop = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        has_duty.set()
        await stop.wait()

    async def is_shortened() -> bool:
        return not await store.read(lambda tx: tx.leaders.is_held("watch", now=START + HOUR))

    async def ask_again(tx: Transaction) -> None:
        tx.notify("duty:watch")

    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as tasks:
        node = Leadership(store=store, clock=clock, owner="next", duty="watch")
        tasks.create_task(node.run_as_leader(work, stop))
        await wait_until(is_shortened)
        assert not has_duty.is_set(), "its holder may live, and extend it"

        clock.advance(LEASE_SECONDS)
        await store.write(ask_again)
        await has_duty.wait()
        stop.set()
