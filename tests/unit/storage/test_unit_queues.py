"""The order of units that write: turns between principals, shares of the connections."""

import asyncio
from typing import Any

from ringback.admission import AdmissionGate
from ringback.domain.principal import Principal
from ringback.storage.unit_queues import WritingQueue
from ringback.storage.units import UnitOfWork
from tests.support.examples import ALICE, BOB


async def no_work(_tx: Any) -> None: ...


def make_unit(principal: Principal | None) -> UnitOfWork:
    return UnitOfWork(no_work, asyncio.get_running_loop().create_future(), principal)


def make_queue(*principals: Principal | None, connections: int = 8) -> WritingQueue:
    queue = WritingQueue(connections=connections)
    for principal in principals:
        queue.add_unit(make_unit(principal))
    return queue


def take_all(queue: WritingQueue) -> list[Principal | None]:
    """The principals of all units that run at once, in their order."""
    taken: list[Principal | None] = []
    while (unit := queue.pop_unit()) is not None:
        taken.append(unit.principal)
    return taken


async def test_principals_and_the_service_take_turns() -> None:
    queue = make_queue(ALICE, ALICE, ALICE, BOB, None, None)

    assert take_all(queue) == [None, ALICE, None, BOB, ALICE, ALICE]


async def test_one_principal_runs_half_of_the_units_and_the_service_one_less() -> None:
    assert take_all(make_queue(*[ALICE] * 20)) == [ALICE] * 4
    assert take_all(make_queue(*[None] * 20)) == [None] * 3


async def test_one_principal_and_the_service_leave_a_connection_to_the_others() -> None:
    queue = make_queue(*[ALICE] * 20, *[None] * 20)

    assert len(take_all(queue)) == 7
    queue.add_unit(make_unit(BOB))
    assert take_all(queue) == [BOB]


async def test_a_unit_that_ends_lets_the_next_one_of_its_principal_run() -> None:
    queue = make_queue(*[ALICE] * 5)
    first = queue.pop_unit()
    take_all(queue)

    assert first is not None
    queue.release(first)

    assert take_all(queue) == [ALICE]


async def test_everybody_runs_one_unit_on_a_single_connection() -> None:
    for principal in (ALICE, None):
        assert take_all(make_queue(principal, principal, connections=1)) == [principal]


async def test_units_that_start_calls_come_first_and_every_fourth_unit_is_another_one() -> None:
    queue = make_queue(None, BOB)
    with AdmissionGate().admit_call():
        for _ in range(4):
            queue.add_unit(make_unit(ALICE))

    assert take_all(queue) == [ALICE, ALICE, ALICE, None, ALICE, BOB]
