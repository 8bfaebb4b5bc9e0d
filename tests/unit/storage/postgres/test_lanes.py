"""Lanes: no waiting unit is left without a worker, and units use the connections that are there. Over simulated connections."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ringback.admission import AdmissionGate
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.storage.postgres.driver import Connection
from ringback.storage.postgres.lanes import Lane
from ringback.storage.postgres.node_connections import NodeConnections
from ringback.storage.unit_queues import WritingQueue
from ringback.storage.units import UnitOfWork
from tests.support.examples import ALICE, BOB
from tests.support.limits import WAIT_SECONDS


class SimulatedConnection:
    def is_closed(self) -> bool:
        return False

    async def close(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - asyncpg's
        pass


async def nothing(_tx: Transaction) -> None:
    pass


async def connect() -> Connection:
    return SimulatedConnection()  # pyright: ignore[reportReturnType] - a lane only opens and closes connections


def make_lane(
    connections_max: int,
    run_unit: Callable[[Connection, UnitOfWork], Awaitable[None]],
    open_connection: Callable[[], Awaitable[Connection]] = connect,
) -> Lane:
    return Lane(
        WritingQueue(connections=connections_max),
        connections_max=connections_max,
        connections=NodeConnections(open_connection),
        run_unit=run_unit,
    )


@pytest.mark.parametrize("connections", [1, 2, 8])
async def test_a_caller_whose_unit_ends_with_all_others_gets_a_worker_for_its_next_one(connections: int) -> None:
    flushed = asyncio.Event()

    async def run_unit(_connection: Connection, unit: UnitOfWork) -> None:
        await flushed.wait()  # one flush answers all commits in the same turn of the event loop
        unit.resolve()

    lane = make_lane(connections, run_unit)

    async def write_twice(principal: Principal) -> None:
        await lane.run(nothing, principal)
        await lane.run(nothing, principal)

    callers = [asyncio.create_task(write_twice(Principal(f"agent-{number}"))) for number in range(connections)]
    await asyncio.sleep(0)
    flushed.set()

    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(*callers)
        await lane.close()


@pytest.mark.parametrize("connections", [1, 2, 8])
async def test_closing_runs_a_unit_that_came_just_before(connections: int) -> None:
    async def run_unit(_connection: Connection, unit: UnitOfWork) -> None:
        unit.resolve()

    lane = make_lane(connections, run_unit)

    async def write_twice(principal: Principal) -> None:
        await lane.run(nothing, principal)
        await lane.run(nothing, principal)

    callers = [asyncio.create_task(write_twice(Principal(f"agent-{number}"))) for number in range(connections)]
    await asyncio.gather(*(lane.run(nothing) for _ in range(connections)))
    async with asyncio.timeout(WAIT_SECONDS):
        await lane.close()
        outcomes = await asyncio.gather(*callers, return_exceptions=True)

    assert all(outcome is None or isinstance(outcome, StoreUnavailable) for outcome in outcomes)


async def test_a_worker_that_cannot_connect_takes_the_connection_that_another_has_returned() -> None:
    connecting, refused, opened = asyncio.Event(), asyncio.Event(), list[Connection]()

    async def open_one_connection() -> Connection:
        if opened:
            connecting.set()
            await refused.wait()
            raise ConnectionRefusedError("too many clients")
        opened.append(await connect())
        return opened[0]

    async def run_unit(_connection: Connection, unit: UnitOfWork) -> None:
        await connecting.wait()
        unit.resolve()

    lane = make_lane(2, run_unit, open_one_connection)
    async with asyncio.timeout(WAIT_SECONDS):
        first, second = (asyncio.create_task(lane.run(nothing, principal)) for principal in (ALICE, BOB))
        await first
        refused.set()  # the first worker has ended: its connection is idle

        await second
        await lane.close()
    assert len(opened) == 1


async def test_a_start_whose_connection_cannot_be_opened_still_runs_before_other_units() -> None:
    refused, flushed, order = asyncio.Event(), asyncio.Event(), list[Principal | None]()
    workers: asyncio.Queue[asyncio.Task[None] | None] = asyncio.Queue()

    async def open_first_connection() -> Connection:
        is_first = not order and workers.empty()
        workers.put_nowait(asyncio.current_task())
        if is_first:
            return await connect()
        await refused.wait()
        raise ConnectionRefusedError("too many clients")

    async def run_unit(_connection: Connection, unit: UnitOfWork) -> None:
        order.append(unit.principal)
        await flushed.wait()
        unit.resolve()

    lane = make_lane(2, run_unit, open_first_connection)
    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(lane.run(nothing, ALICE))
        await workers.get()
        with AdmissionGate().admit_call():
            group.create_task(lane.run(nothing, BOB))
        unconnected = await workers.get()
        assert unconnected is not None
        group.create_task(lane.run(nothing))
        refused.set()
        await asyncio.wait([unconnected])
        for _ in range(3):
            await asyncio.sleep(0)  # the worker learns of it, and puts the start back
        flushed.set()

    assert order == [ALICE, BOB, None]
    await lane.close()


async def test_lanes_take_turns_with_the_only_connection_that_a_full_server_has_left() -> None:
    """Two lanes that only read kept all connections, and the lane that writes got none until a restart."""
    opened, order = list[Connection](), list[str]()

    async def open_one_connection() -> Connection:
        if opened:
            raise ConnectionRefusedError("too many clients")
        opened.append(await connect())
        return opened[0]

    async def run_unit(_connection: Connection, unit: UnitOfWork) -> None:
        await asyncio.sleep(0)
        order.append(str(unit.principal))
        unit.resolve()

    connections = NodeConnections(open_one_connection)
    lanes = {
        name: Lane(WritingQueue(connections=4), connections_max=4, connections=connections, run_unit=run_unit)
        for name in ("reading", "writing")
    }
    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        for _ in range(20):
            for name, lane in lanes.items():
                group.create_task(lane.run(nothing, Principal(name)))
    assert (order.count("reading"), order.count("writing")) == (20, 20)
    assert "writing" in order[:4]
    await lanes["reading"].run(nothing, ALICE)  # its connection is idle afterwards, and another lane uses it
    await lanes["writing"].run(nothing, BOB)
    for lane in lanes.values():
        await lane.close()
    await connections.close()
    assert len(opened) == 1


async def test_a_unit_whose_new_connection_is_slow_gets_the_next_one_that_is_given_back() -> None:
    """A full pooler accepts a connection and keeps its first statement waiting: leases were not extended meanwhile."""
    opened, opening = list[Connection](), asyncio.Event()

    async def open_one_connection() -> Connection:
        if opened:
            await opening.wait()
        opened.append(await connect())
        return opened[-1]

    flushed = asyncio.Event()

    async def run_unit(_connection: Connection, unit: UnitOfWork) -> None:
        if unit.principal == ALICE:
            await flushed.wait()
        unit.resolve()

    connections = NodeConnections(open_one_connection)
    writing, heartbeats = (
        Lane(WritingQueue(connections=1), connections_max=1, connections=connections, run_unit=run_unit)
        for _ in range(2)
    )
    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        group.create_task(writing.run(nothing, ALICE))
        await asyncio.sleep(0)
        extended = group.create_task(heartbeats.run(nothing, BOB))
        while len(opened) < 1 or not connections.is_awaited:  # noqa: ASYNC110 - the lanes set no event
            await asyncio.sleep(0)
        flushed.set()
        await extended

    assert len(opened) == 1
    for lane in (writing, heartbeats):
        await lane.close()
    await connections.close()  # ends the opening


async def test_a_lane_whose_new_connection_went_to_another_one_opens_one_more() -> None:
    """The other one may lose it: then none is given back, and the lane waited for as long as no other unit came."""
    opened, opening = list[Connection](), asyncio.Event()

    async def open_slowly_later() -> Connection:
        if opened:
            await opening.wait()
        opened.append(await connect())
        return opened[-1]

    connections = NodeConnections(open_slowly_later)
    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        await connections.acquire()
        returned = group.create_task(connections.wait_for_returned())
        await asyncio.sleep(0)
        acquired = group.create_task(connections.acquire())
        await asyncio.sleep(0)
        opening.set()

    assert [returned.result(), acquired.result()] == opened[1:]


async def test_a_new_connection_that_is_not_needed_any_more_is_idle_for_the_next_unit() -> None:
    opened, opening = list[Connection](), asyncio.Event()

    async def open_slowly() -> Connection:
        await opening.wait()
        opened.append(await connect())
        return opened[-1]

    connections = NodeConnections(open_slowly)
    first, second = asyncio.create_task(connections.acquire()), asyncio.create_task(connections.acquire())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    opening.set()

    async with asyncio.timeout(WAIT_SECONDS):
        acquired = await second
        while len(opened) < 2:  # noqa: ASYNC110 - an opening sets no event
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        another = await connections.acquire()
    assert {id(acquired), id(another)} == {id(each) for each in opened}
