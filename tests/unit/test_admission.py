"""Admissions have priority over background work that has not begun, and never stop it."""

import asyncio
from collections.abc import Callable

import pytest

from ringback.admission import (
    ATTEMPT_WEIGHT_BESIDE_STARTS,
    BACKGROUND_WAIT_SECONDS,
    IDLE_INTERVALS,
    PROBE_DELAY_MAX,
    PROBE_INTERVALS,
    RELEASE_BATCH_MAX,
    STARTS_SECONDS,
    TURN_WEIGHT,
    Admission,
    AdmissionGate,
    find_admission,
    leave_admission_context,
)
from ringback.domain.principal import Principal
from tests.support.limits import WAIT_SECONDS

FOR_EVER = 1e9
ALICE, BOB = Principal("alice"), Principal("bob")


async def run_loop_turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def enter_gate(gate: AdmissionGate, begun: list[int], number: int, principal: Principal = ALICE) -> None:
    await gate.wait_for_background_turn(principal)
    begun.append(number)


async def test_background_work_begins_at_once_while_no_call_is_admitted() -> None:
    await asyncio.wait_for(AdmissionGate().wait_for_background_turn(ALICE), WAIT_SECONDS)


async def test_background_work_waits_for_the_end_of_the_admission_and_begins_in_order() -> None:
    gate, begun = AdmissionGate(interval_seconds=FOR_EVER), list[int]()
    await gate.wait_for_background_turn(ALICE)
    await run_loop_turns(1)

    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        with gate.admit_call():
            for number in range(3):
                group.create_task(enter_gate(gate, begun, number))
            await run_loop_turns(10)
            assert begun == []

    assert begun == [0, 1, 2]


async def test_one_execution_begins_in_each_turn_of_the_event_loop() -> None:
    gate, begun = AdmissionGate(), list[int]()

    async with asyncio.timeout(WAIT_SECONDS), asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(enter_gate(gate, begun, number))
        await run_loop_turns(1)
        assert len(begun) == 1

    assert begun == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("seconds_since_start", "begun_count"),
    [(STARTS_SECONDS / 2, TURN_WEIGHT // ATTEMPT_WEIGHT_BESIDE_STARTS), (2 * STARTS_SECONDS, TURN_WEIGHT)],
    ids=["few after a start", "many when no calls are started"],
)
async def test_several_attempts_begin_in_one_turn_of_the_event_loop(
    seconds_since_start: float, begun_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, now, begun = asyncio.get_running_loop(), [1e6], list[int]()
    gate = AdmissionGate()

    async def attempt(number: int) -> None:
        await gate.wait_for_background_turn(ALICE, is_attempt=True)
        begun.append(number)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", lambda: now[0])
        with gate.admit_call():
            pass
        now[0] += seconds_since_start
        async with asyncio.TaskGroup() as group:
            for number in range(2 * TURN_WEIGHT):
                group.create_task(attempt(number))
            await run_loop_turns(1)
            assert len(begun) == begun_count

    assert begun == list(range(2 * TURN_WEIGHT))


async def test_continuous_admissions_do_not_stop_background_work() -> None:
    gate, begun = AdmissionGate(interval_seconds=0), list[int]()

    async with asyncio.timeout(WAIT_SECONDS):
        with gate.admit_call():
            async with asyncio.TaskGroup() as group:
                for number in range(5):
                    group.create_task(enter_gate(gate, begun, number))

    assert begun == [0, 1, 2, 3, 4]


async def test_a_cancelled_waiter_blocks_no_other() -> None:
    gate, begun = AdmissionGate(interval_seconds=FOR_EVER), list[int]()
    await gate.wait_for_background_turn(ALICE)
    with gate.admit_call():
        held = [asyncio.create_task(enter_gate(gate, begun, number)) for number in range(3)]
        await run_loop_turns(2)
        held[0].cancel()
        await run_loop_turns(2)

    async with asyncio.timeout(WAIT_SECONDS):
        await asyncio.gather(*held[1:])
    with pytest.raises(asyncio.CancelledError):
        await held[0]
    assert begun == [1, 2]


async def test_the_context_of_an_admission_is_marked() -> None:
    gate = AdmissionGate()
    assert find_admission() is None

    with gate.admit_call():
        outer = find_admission()
        with gate.admit_call():
            assert find_admission() not in {outer, None}
        assert find_admission() is outer is not None

    assert find_admission() is None


async def test_missed_background_work_begins_after_a_turn_that_used_much_cpu_time() -> None:
    cpu_time, begun = [0.0], list[int]()
    gate = AdmissionGate(interval_seconds=1000.0, cpu_time=lambda: cpu_time[0])
    await gate.wait_for_background_turn(ALICE)
    await run_loop_turns(1)

    async with asyncio.TaskGroup() as group:
        with gate.admit_call():
            for number in range(3 * RELEASE_BATCH_MAX):
                group.create_task(enter_gate(gate, begun, number))
            await run_loop_turns(2)
            assert begun == []
            cpu_time[0] += 5500.0
            await release_again(gate)
            assert begun == [0, 1, 2, 3, 4]
            cpu_time[0] += 1e6
            await release_again(gate)
            assert len(begun) == 5 + RELEASE_BATCH_MAX


@pytest.mark.parametrize(
    ("seconds", "begun_count"),
    [
        (0.1 * (IDLE_INTERVALS - 1), 0),
        (0.1 * (IDLE_INTERVALS + 1), 1),
        (0.2 * IDLE_INTERVALS, 1),
        (BACKGROUND_WAIT_SECONDS + 0.1, 2 * RELEASE_BATCH_MAX),
    ],
    ids=["less than four intervals", "four intervals", "a turn that other processes delayed", "a long wait"],
)
async def test_without_cpu_time_one_piece_begins_after_four_intervals_and_all_after_a_long_wait(
    seconds: float, begun_count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, now, begun = asyncio.get_running_loop(), [1e6], list[int]()
    gate = AdmissionGate(interval_seconds=0.1, cpu_time=lambda: 0.0)
    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", lambda: now[0])
        await gate.wait_for_background_turn(ALICE)
        await run_loop_turns(1)
        async with asyncio.TaskGroup() as group:
            with gate.admit_call():
                for number in range(2 * RELEASE_BATCH_MAX):
                    group.create_task(enter_gate(gate, begun, number))
                await run_loop_turns(2)
                assert begun == []
                now[0] += seconds
                await release_again(gate)
                assert len(begun) == begun_count


async def test_an_admission_has_priority_until_its_commit_begins() -> None:
    gate, begun = AdmissionGate(interval_seconds=FOR_EVER), list[int]()
    with gate.admit_call():
        held = asyncio.create_task(enter_gate(gate, begun, 1))
        await run_loop_turns(2)
        assert begun == []
        admission = find_admission()
        assert admission is not None
        admission.end()
        admission.end()
        await asyncio.wait_for(held, WAIT_SECONDS)

    assert begun == [1]
    assert gate.is_quiet


class ProbedGate:
    """A gate with an admission and a piece that waits, whose timers ring when the test says so. Times are in probes."""

    PROBE_SECONDS = 0.01

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun: list[int] = []
        self._now, self._cpu_time = 1e6, 0.0
        self._timers: list[tuple[float, Callable[[], None]]] = []
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: self._now)
        monkeypatch.setattr(loop, "call_later", self._set_timer)
        self.gate = AdmissionGate(
            interval_seconds=self.PROBE_SECONDS / PROBE_INTERVALS, cpu_time=lambda: self._cpu_time
        )

    def _set_timer(self, delay: float, callback: Callable[[], None]) -> None:
        self._timers.append((delay, callback))

    async def ring(self, *, after: float, cpu_time: float) -> float:
        """Let the only timer ring; return for when it was set."""
        self._now += after * self.PROBE_SECONDS
        self._cpu_time += cpu_time * self.PROBE_SECONDS
        [(delay, callback)] = self._timers
        self._timers.clear()
        callback()
        await run_loop_turns(3)
        return delay / self.PROBE_SECONDS

    async def hold_piece(self) -> None:
        await self.gate.wait_for_background_turn(ALICE)
        await run_loop_turns(1)
        self.piece = asyncio.create_task(enter_gate(self.gate, self.begun, 1))
        await run_loop_turns(2)
        assert self.begun == []


@pytest.mark.parametrize(
    ("after", "cpu_time", "begun"),
    [(1.0, 0.1, [1]), (2.0, 0.9, [1]), (1.0, 0.6, []), (PROBE_DELAY_MAX + 0.1, 0.1, [])],
    ids=["idle", "idle for half of the time", "busy", "kept from a core"],
)
async def test_background_work_begins_beside_an_admission_while_the_event_loop_is_idle(
    after: float, cpu_time: float, begun: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        probed = ProbedGate(patched)
        with probed.gate.admit_call():
            await probed.hold_piece()
            await probed.ring(after=after, cpu_time=cpu_time)
            assert probed.begun == begun

    await asyncio.wait_for(probed.piece, WAIT_SECONDS)


async def test_no_probe_is_shorter_than_another_however_little_of_the_interval_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Timers for what was left of the interval of CPU time rang hundreds of times for one piece."""
    with monkeypatch.context() as patched:
        probed = ProbedGate(patched)
        with probed.gate.admit_call():
            await probed.hold_piece()
            delays = [await probed.ring(after=1.0, cpu_time=0.99) for _ in range(5)]
            assert delays == pytest.approx([1.0] * 5)
            assert probed.begun == []
            await probed.ring(after=1.0, cpu_time=0.99)
            assert probed.begun == [1]


async def release_again(gate: AdmissionGate) -> None:
    """What a timer of the gate does, or the end of another admission."""
    with gate.admit_call():
        pass
    await run_loop_turns(3)


async def test_a_background_task_does_not_belong_to_the_admission_that_started_it() -> None:
    async def look() -> Admission | None:
        return find_admission()

    async def background() -> Admission | None:
        leave_admission_context()
        return await asyncio.create_task(look())

    with AdmissionGate().admit_call():
        assert await asyncio.create_task(background()) is None
        assert find_admission() is not None


@pytest.mark.parametrize(
    ("seconds_waited", "begun_first"),
    [(0.0, [0, 999, 1]), (BACKGROUND_WAIT_SECONDS, [0, *range(1, RELEASE_BATCH_MAX), 999])],
    ids=["in turns", "oldest first after a long wait, but one in turn"],
)
async def test_a_piece_of_one_principal_does_not_wait_for_all_pieces_of_another(
    seconds_waited: float, begun_first: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, now, cpu_time, begun = asyncio.get_running_loop(), [1e6], [0.0], list[int]()
    gate = AdmissionGate(interval_seconds=1.0, cpu_time=lambda: cpu_time[0])
    with monkeypatch.context() as patched:
        patched.setattr(loop, "time", lambda: now[0])
        await gate.wait_for_background_turn(ALICE)
        await run_loop_turns(1)
        async with asyncio.TaskGroup() as group:
            with gate.admit_call():
                for number in range(5 * RELEASE_BATCH_MAX):
                    group.create_task(enter_gate(gate, begun, number))
                group.create_task(enter_gate(gate, begun, 999, BOB))
                await run_loop_turns(2)
                now[0] += seconds_waited
                while len(begun) < len(begun_first):
                    cpu_time[0] += 1.0
                    await release_again(gate)
                assert begun[: len(begun_first)] == begun_first
