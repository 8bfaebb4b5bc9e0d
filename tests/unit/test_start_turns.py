"""Starts of a principal with many unfinished calls take turns with the service's work for these calls."""

import asyncio
from contextlib import ExitStack
from contextvars import copy_context

import pytest

from ringback.admission import AdmissionGate, find_admission
from ringback.domain.principal import Principal
from ringback.start_turns import EARNED_STARTS_MAX, START_WAIT_SECONDS, STARTS_FOR_END, StartTurns
from tests.support.limits import WAIT_SECONDS

ALICE, BOB = Principal("alice"), Principal("bob")


class Starts:
    """Starts of one principal that wait for their turns. Each is over in the turn of the event loop in which it begins."""

    def __init__(self, turns: StartTurns, count: int, principal: Principal = ALICE) -> None:
        self._turns = turns
        self._principal = principal
        self.begun = 0
        self.tasks = [asyncio.create_task(self._start()) for _ in range(count)]

    async def _start(self) -> None:
        async with self._turns.begin_start(self._principal):
            self.begun += 1

    async def wait_until_over(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.gather(*self.tasks)


async def run_loop_turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_starts_wait_while_the_service_has_work_for_calls_of_their_principal() -> None:
    turns = StartTurns()
    with turns.hold_work(ALICE):
        held, others = Starts(turns, 3), Starts(turns, 3, BOB)
        await others.wait_until_over()
        assert held.begun == 0

    await held.wait_until_over()
    assert len(turns) == 0


async def test_each_end_lets_two_starts_begin() -> None:
    turns = StartTurns()
    with turns.hold_work(ALICE):
        starts = Starts(turns, 10)
        for ends in range(1, 4):
            with turns.hold_end(ALICE):
                await run_loop_turns()
            await run_loop_turns()
            assert starts.begun == ends * STARTS_FOR_END

    await starts.wait_until_over()


async def test_an_end_that_was_not_written_earns_no_start() -> None:
    turns = StartTurns()
    with turns.hold_work(ALICE):
        starts = Starts(turns, 1)
        await run_loop_turns()
        with pytest.raises(OSError, match="disk"), turns.hold_end(ALICE):
            raise OSError("disk")
        await run_loop_turns()
        assert starts.begun == 0

    await starts.wait_until_over()


async def test_ends_earn_a_limited_number_of_starts() -> None:
    turns = StartTurns()
    with turns.hold_work(ALICE):
        for _ in range(EARNED_STARTS_MAX):
            with turns.hold_end(ALICE):
                pass
        starts = Starts(turns, EARNED_STARTS_MAX + 5)
        await run_loop_turns()
        assert starts.begun == EARNED_STARTS_MAX

    await starts.wait_until_over()


async def test_without_work_in_hand_starts_begin_one_after_the_other() -> None:
    turns, inside = StartTurns(), list[int]()

    async def start(number: int) -> None:
        async with turns.begin_start(ALICE):
            inside.append(number)
            assert len(inside) == 1
            await run_loop_turns(3)
            inside.remove(number)

    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(start(number))


async def test_a_cancelled_start_delays_no_other() -> None:
    turns = StartTurns()
    with ExitStack() as work:
        work.enter_context(turns.hold_work(ALICE))
        starts = Starts(turns, 3)
        await run_loop_turns()
        starts.tasks[0].cancel()
        await run_loop_turns()
        work.close()  # the second start has its turn, and is cancelled before it uses it
        starts.tasks[1].cancel()
        await run_loop_turns()

    await asyncio.wait_for(starts.tasks[2], WAIT_SECONDS)
    assert starts.begun == 1
    assert len(turns) == 0


async def test_the_start_of_a_principal_with_many_calls_is_no_admission_and_waits_for_those_of_others() -> None:
    gate, begun = AdmissionGate(interval_seconds=1e9), list[Principal]()
    await gate.wait_for_background_turn(BOB)
    await run_loop_turns(1)

    async def start() -> None:
        with await gate.wait_for_admission(ALICE, is_background=True):
            assert find_admission() is None
            begun.append(ALICE)

    own_context = copy_context()
    with await gate.wait_for_admission(BOB, is_background=False):
        assert find_admission() is not None
        background = asyncio.create_task(start(), context=own_context)
        await run_loop_turns()
        assert begun == []

    await asyncio.wait_for(background, WAIT_SECONDS)
    assert begun == [ALICE]


class GatedStart:
    """A start of ALICE that waits at the gate, and holds its admission until it is released."""

    def __init__(self, gate: AdmissionGate) -> None:
        self._gate = gate
        self._may_end = asyncio.Event()
        self.has_priority: bool | None = None
        self.task = asyncio.create_task(self._start(), context=copy_context())

    async def _start(self) -> None:
        with await self._gate.wait_for_admission(ALICE, is_background=True):
            self.has_priority = find_admission() is not None
            await self._may_end.wait()

    async def end(self) -> None:
        self._may_end.set()
        await asyncio.wait_for(self.task, WAIT_SECONDS)


@pytest.mark.parametrize("seconds_before_the_end_of_the_work", [None, 0.0, START_WAIT_SECONDS / 2])
async def test_a_start_begins_with_priority_after_its_longest_wait_wherever_it_waits(
    seconds_before_the_end_of_the_work: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for the work for its principal's calls, and then behind 300 pieces of its principal. Both share one bound."""
    loop, now = asyncio.get_running_loop(), [1e6]
    gate = AdmissionGate(interval_seconds=1e9, cpu_time=lambda: 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", lambda: now[0])
        await gate.wait_for_background_turn(ALICE)
        await run_loop_turns(1)
        with gate.admit_call(), ExitStack() as work:
            pieces = [asyncio.create_task(gate.wait_for_background_turn(BOB)) for _ in range(300)]
            work.enter_context(gate.hold_work(ALICE))
            start = GatedStart(gate)
            await run_loop_turns()
            if seconds_before_the_end_of_the_work is not None:
                now[0] += seconds_before_the_end_of_the_work
                work.close()
                await run_loop_turns()
            now[0] = 1e6 + START_WAIT_SECONDS - 0.01
            await run_loop_turns()
            assert start.has_priority is None
            now[0] += 0.02
            await run_loop_turns()
            assert start.has_priority is True
            await start.end()
            assert not any(piece.done() for piece in pieces)

        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.gather(*pieces)
    assert gate.is_quiet


async def test_starts_that_are_cancelled_or_have_waited_for_long_leave_nothing_at_the_gate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, now = asyncio.get_running_loop(), [1e6]
    gate = AdmissionGate(interval_seconds=1e9, cpu_time=lambda: 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", lambda: now[0])
        await gate.wait_for_background_turn(BOB)
        await run_loop_turns(1)
        with gate.admit_call():
            starts = [GatedStart(gate) for _ in range(6)]  # one waits for the gate, the others for their turns
            await run_loop_turns()
            starts[0].task.cancel()
            starts[3].task.cancel()
            await run_loop_turns()
            now[0] += START_WAIT_SECONDS
            starts[1].task.cancel()  # in the turn of the event loop in which its wait ends
            await run_loop_turns()
            assert [start.has_priority for start in starts] == [None, None, True, None, True, True]
            for number in (2, 4, 5):
                await starts[number].end()

        assert gate.is_quiet
        assert all(starts[number].task.cancelled() for number in (0, 1, 3))
        late = GatedStart(gate)
        await run_loop_turns()
        assert late.has_priority is False
        await late.end()
