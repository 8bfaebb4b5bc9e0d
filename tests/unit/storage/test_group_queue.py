"""Groups of waiting units: admissions first and alone, and the others are never left waiting for long."""

import asyncio
from collections.abc import Iterable

from ringback.domain.ports import Transaction
from ringback.storage.sqlite.group_queue import (
    ADMISSION_GROUPS_IN_A_ROW,
    ADMISSIONS_AT_ONCE,
    OTHERS_AT_ONCE,
    UNITS_IN_GROUP_MAX,
    GroupQueue,
)
from ringback.storage.units import UnitOfWork


async def do_nothing(_: Transaction) -> None: ...


def add_units(queue: GroupQueue, count: int, *, are_admissions: bool) -> None:
    for _ in range(count):
        done = asyncio.get_running_loop().create_future()
        queue.add_unit(UnitOfWork(do_nothing, done, is_admission=are_admissions))


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


async def test_endless_admissions_leave_other_units_every_fourth_group() -> None:
    queue, groups = GroupQueue(), list[tuple[int, int]]()
    add_units(queue, 3 * OTHERS_AT_ONCE, are_admissions=False)

    for _ in range(3 * (ADMISSION_GROUPS_IN_A_ROW + 1)):
        add_units(queue, ADMISSIONS_AT_ONCE - len(queue.waiting_admissions), are_admissions=True)
        groups.append(describe(queue.take_group()))

    of_admissions = [(ADMISSIONS_AT_ONCE, 0)] * ADMISSION_GROUPS_IN_A_ROW
    assert groups == [
        *of_admissions, (0, 3 * OTHERS_AT_ONCE // 2),
        *of_admissions, (0, OTHERS_AT_ONCE),
        *of_admissions, (0, OTHERS_AT_ONCE // 2),
    ]  # fmt: skip


async def test_the_first_unit_that_arrives_among_endless_admissions_waits_for_three_groups() -> None:
    queue = GroupQueue()
    for _ in range(10 * ADMISSION_GROUPS_IN_A_ROW):
        add_units(queue, ADMISSIONS_AT_ONCE, are_admissions=True)
        assert describe(queue.take_group()) == (ADMISSIONS_AT_ONCE, 0)

    add_units(queue, 100 * ADMISSIONS_AT_ONCE, are_admissions=True)
    add_units(queue, 1, are_admissions=False)

    groups = [describe(queue.take_group()) for _ in range(ADMISSION_GROUPS_IN_A_ROW + 1)]
    assert groups.index((0, 1)) == ADMISSION_GROUPS_IN_A_ROW


async def test_no_group_is_larger_than_the_maximum_and_units_keep_their_order() -> None:
    queue, taken = GroupQueue(), list[UnitOfWork]()
    for are_admissions in (True, False):
        add_units(queue, 3 * UNITS_IN_GROUP_MAX, are_admissions=are_admissions)
    admissions, others = list(queue.waiting_admissions), list(queue.waiting_others)

    while queue:
        group = queue.take_group()
        assert 0 < len(group) <= UNITS_IN_GROUP_MAX
        taken += group

    assert [unit for unit in taken if unit.is_admission] == admissions
    assert [unit for unit in taken if not unit.is_admission] == others
