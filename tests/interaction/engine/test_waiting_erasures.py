"""Erasures that wait for calls do not hold up the erasures of other principals."""

from collections.abc import Sequence
from datetime import datetime

from ringback.domain.call import Call
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.erasure import Erasure, ErasureState
from ringback.domain.ports import Transaction
from ringback.janitor.config import BatchRows
from ringback.janitor.erasing import CHECKS_MAX, ErasureTasks
from tests.support.builders import make_call, make_call_erasure
from tests.support.clock import START, FakeClock
from tests.support.engine import Engine
from tests.support.examples import ALICE, BOB
from tests.support.stored_work import COMPLETED_RESULT


async def insert_waiting_erasures(engine: Engine, *calls: Call) -> Sequence[Erasure]:
    erasures = [make_call_erasure(call, is_waiting=True) for call in calls]

    async def insert(tx: Transaction) -> None:
        for call, erasure in zip(calls, erasures, strict=True):
            await tx.calls.insert(call)
            await tx.erasures.insert(erasure)

    await engine.store.write(insert)
    return erasures


async def read_state(engine: Engine, erasure: Erasure) -> ErasureState | None:
    found = await engine.store.read(lambda tx: tx.erasures.get(erasure.id))
    return None if found is None else found.state


async def read_worked_at(engine: Engine, erasure: Erasure) -> datetime | None:
    found = await engine.store.read(lambda tx: tx.erasures.get(erasure.id))
    return None if found is None else found.worked_at


async def end_call(engine: Engine, call: Call) -> None:
    await engine.store.write(lambda tx: engine.recorder.finish_call(tx, call, COMPLETED_RESULT, lease_token=None))
    assert (await engine.read_call(call)).outcome is CallOutcome.RESULT


async def count_checks(engine: Engine, clock: FakeClock, tasks: ErasureTasks) -> int:
    """The checks of one interval."""
    check_waiting = tasks.tasks[0].run
    checks = 0
    clock.advance(1)
    while await engine.store.write(check_waiting):
        checks += 1
        clock.advance(1)
    return checks


async def test_many_waiting_erasures_of_one_principal_do_not_hold_up_the_erasure_of_another(
    still: Engine, fake_clock: FakeClock
) -> None:
    await insert_waiting_erasures(still, *[make_call(principal=ALICE) for _ in range(24)])
    call = make_call(principal=BOB)
    fake_clock.advance(5)
    (erasure,) = await insert_waiting_erasures(still, call)
    await end_call(still, call)

    janitor = still.make_janitor()
    for _ in range(2):
        await janitor.run_once()

    assert await read_state(still, erasure) is ErasureState.FINISHED


async def test_an_erasure_that_can_go_on_is_not_behind_those_that_wait(still: Engine) -> None:
    await insert_waiting_erasures(still, *[make_call(principal=ALICE) for _ in range(24)])
    able = make_call_erasure(make_call(principal=BOB))
    await still.store.write(lambda tx: tx.erasures.insert(able))

    await still.make_janitor().run_once()

    assert await read_state(still, able) is ErasureState.FINISHED


async def test_an_interval_checks_each_waiting_erasure_once(still: Engine, fake_clock: FakeClock) -> None:
    await insert_waiting_erasures(
        still, make_call(principal=ALICE), make_call(principal=ALICE), make_call(principal=BOB)
    )
    tasks = ErasureTasks(still.recorder, BatchRows(200))

    assert [await count_checks(still, fake_clock, tasks) for _ in range(2)] == [3, 3]


async def test_an_interval_checks_a_bounded_number_of_waiting_erasures_and_the_next_one_the_others(
    still: Engine, fake_clock: FakeClock
) -> None:
    erasures = await insert_waiting_erasures(still, *[make_call(principal=ALICE) for _ in range(CHECKS_MAX + 5)])
    tasks = ErasureTasks(still.recorder, BatchRows(200))

    assert await count_checks(still, fake_clock, tasks) == CHECKS_MAX
    await count_checks(still, fake_clock, tasks)

    assert START not in [await read_worked_at(still, each) for each in erasures]
