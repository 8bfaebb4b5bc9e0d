"""Groups of waiting units: admissions first and alone, and the others are never left waiting for long."""

import asyncio
from collections.abc import Iterable

import pytest

from ringback.admission import Admission
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from ringback.storage.sqlite.group_queue import (
    ADMISSIONS_AT_ONCE,
    ADMISSIONS_BEFORE_OTHERS_MAX,
    ADMISSIONS_FOR_OTHER,
    ADMISSIONS_IN_A_ROW,
    UNITS_IN_GROUP_MAX,
    GroupQueue,
)
from ringback.storage.units import UnitOfWork
from tests.support.examples import ALICE, BOB


async def do_nothing(_: Transaction) -> None: ...


def add_units(
    queue: GroupQueue, count: int, *, are_admissions: bool, principal: Principal | None = None
) -> list[UnitOfWork]:
    loop = asyncio.get_running_loop()
    admission = Admission(lambda: None) if are_admissions else None
    units = [UnitOfWork(do_nothing, loop.create_future(), principal, admission) for _ in range(count)]
    for unit in units:
        queue.add_unit(unit)
    return units


def describe(group: Iterable[UnitOfWork]) -> tuple[int, int]:
    """The numbers of its admissions and of its other units."""
    kinds = [unit.is_admission for unit in group]
    return kinds.count(True), kinds.count(False)


async def test_admissions_share_no_group_with_other_units() -> None:
    queue = GroupQueue()
    add_units(queue, 3, are_admissions=False)
    add_units(queue, 2, are_admissions=True)

    assert [describe(queue.take_group()) for _ in range(2)] == [(2, 0), (0, 3)]
    assert not queue


async def test_a_burst_of_admissions_is_taken_in_shares_of_one_half() -> None:
    queue = GroupQueue()
    add_units(queue, 8 * ADMISSIONS_AT_ONCE, are_admissions=True)

    sizes = [describe(queue.take_group())[0] for _ in range(4)]

    assert sizes == [4 * ADMISSIONS_AT_ONCE, 2 * ADMISSIONS_AT_ONCE, ADMISSIONS_AT_ONCE, ADMISSIONS_AT_ONCE]


async def test_a_few_endless_admissions_leave_other_units_every_fourth_group() -> None:
    queue, groups = GroupQueue(), list[tuple[int, int]]()
    in_a_row, others_max = ADMISSIONS_IN_A_ROW // ADMISSIONS_AT_ONCE, ADMISSIONS_IN_A_ROW // ADMISSIONS_FOR_OTHER
    add_units(queue, 3 * others_max, are_admissions=False)

    for _ in range(3 * (in_a_row + 1)):
        add_units(queue, ADMISSIONS_AT_ONCE - len(queue.waiting_admissions), are_admissions=True)
        groups.append(describe(queue.take_group()))

    of_admissions = [(ADMISSIONS_AT_ONCE, 0)] * in_a_row
    assert groups == [
        *of_admissions, (0, 3 * others_max // 2),
        *of_admissions, (0, others_max),
        *of_admissions, (0, 3 * others_max - 3 * others_max // 2 - others_max),
    ]  # fmt: skip


async def test_the_first_unit_that_arrives_among_endless_admissions_waits_for_three_groups() -> None:
    queue = GroupQueue()
    for _ in range(ADMISSIONS_IN_A_ROW):
        add_units(queue, ADMISSIONS_AT_ONCE, are_admissions=True)
        assert describe(queue.take_group()) == (ADMISSIONS_AT_ONCE, 0)

    add_units(queue, 1, are_admissions=False)

    groups: list[tuple[int, int]] = []
    while queue.waiting_others:
        add_units(queue, ADMISSIONS_AT_ONCE, are_admissions=True)
        groups.append(describe(queue.take_group()))
    assert groups == [(ADMISSIONS_AT_ONCE, 0)] * (ADMISSIONS_IN_A_ROW // ADMISSIONS_AT_ONCE) + [(0, 1)]


@pytest.mark.parametrize("clients", [1, 8, 64, 256])
async def test_however_many_clients_start_calls_one_unit_in_three_is_another_one(clients: int) -> None:
    """Each client starts its next call when the last one is stored; 32 other units wait at each time."""
    queue, admissions, others = GroupQueue(), 0, 0

    for _ in range(200):
        add_units(queue, clients - len(queue.waiting_admissions), are_admissions=True)
        add_units(queue, 32 - len(queue.waiting_others), are_admissions=False)
        group_admissions, group_others = describe(queue.take_group())
        admissions += group_admissions
        others += group_others

    assert others * ADMISSIONS_FOR_OTHER >= admissions * 9 // 10


async def test_a_unit_waits_for_one_group_of_admissions_if_that_group_is_large() -> None:
    queue = GroupQueue()
    add_units(queue, 1, are_admissions=False)
    add_units(queue, 10 * ADMISSIONS_BEFORE_OTHERS_MAX, are_admissions=True)

    assert [describe(queue.take_group()) for _ in range(2)] == [(ADMISSIONS_BEFORE_OTHERS_MAX, 0), (0, 1)]


async def test_no_group_is_larger_than_the_maximum_and_units_keep_their_order() -> None:
    queue, taken = GroupQueue(), list[UnitOfWork]()
    admissions = add_units(queue, 3 * UNITS_IN_GROUP_MAX, are_admissions=True)
    others = add_units(queue, 3 * UNITS_IN_GROUP_MAX, are_admissions=False)

    while queue:
        group = queue.take_group()
        assert 0 < len(group) <= UNITS_IN_GROUP_MAX
        taken += group

    assert [unit for unit in taken if unit.is_admission] == admissions
    assert [unit for unit in taken if not unit.is_admission] == others


@pytest.mark.parametrize("are_admissions", [True, False], ids=["admissions", "others"])
async def test_principals_and_the_service_take_turns(*, are_admissions: bool) -> None:
    queue = GroupQueue()
    add_units(queue, 40, are_admissions=True, principal=ALICE)
    add_units(queue, 40, are_admissions=False, principal=ALICE)
    expected = [
        *add_units(queue, 1, are_admissions=are_admissions, principal=BOB),
        *add_units(queue, 2, are_admissions=are_admissions),
    ]

    group = next(group for group in iter(queue.take_group, []) if group[0].is_admission is are_admissions)

    assert [unit.principal for unit in group[:5]] == [ALICE, BOB, None, ALICE, None]
    assert [unit for unit in group if unit.principal != ALICE] == expected
