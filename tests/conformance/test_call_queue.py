"""Calls as the runner and the janitor see them: turns, leases, and who was left behind."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from ringback.domain.call import Call, Handle, CallPhase, CallStatus, completion_from_result, enter_phase, apply_completion
from ringback.domain.call_rows import CallChange
from ringback.domain.ids import CallId
from ringback.domain.ports import Store, Transaction
from tests.support.builders import a_call
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

UNTIL = START + timedelta(seconds=30)
LEASED = {"phase": CallPhase.RUNNING, "lease_owner": "runner-1", "lease_token": "lease_1", "lease_until": UNTIL}
TASK = Handle(driver="task", data={"task_id": "1"})


async def insert(store: Store, *calls: Call) -> None:
    async def work(tx: Transaction) -> None:
        for call in calls:
            await tx.calls.insert(call)

    await store.write(work)


async def lease(store: Store, *, limit: int = 10, upstream: str = "git") -> Sequence[Call]:
    return await store.write(
        lambda tx: tx.call_queue.lease_queued(upstream, owner="runner-1", token="lease_1", until=UNTIL, limit=limit)
    )


async def lapsed(store: Store, *, limit: int = 10) -> list[CallId]:
    calls = await store.read(lambda tx: tx.call_queue.find_lease_expired(now=UNTIL, limit=limit))
    return [call.id for call in calls]


async def test_a_leased_call_carries_its_lease_and_is_leased_once(store: Store) -> None:
    call = a_call()
    await insert(store, call)

    first, second = await lease(store), await lease(store)

    assert first == [replace(call, **LEASED)]
    assert second == []
    assert await store.read(lambda tx: tx.calls.get(call.id)) == first[0]


@pytest.mark.parametrize(
    "unfit",
    [
        {"phase": CallPhase.PARKED, "status": CallStatus.INPUT_REQUIRED},
        {"phase": CallPhase.ENDED, "status": CallStatus.CANCELLED},
        {"upstream": "time"},
        LEASED,
        LEASED | {"lease_owner": None, "lease_token": None, "lease_until": None},
    ],
)
async def test_what_is_not_queued_here_is_not_leased(store: Store, unfit: dict[str, object]) -> None:
    await insert(store, a_call(**unfit))

    assert await lease(store) == []


async def test_a_turn_is_taken_past_the_queue_only_while_the_queue_of_the_upstream_is_empty(store: Store) -> None:
    async def take_turn(upstream: str) -> bool:
        return await store.write(lambda tx: tx.call_queue.take_turn(upstream, ALICE))

    await insert(store, a_call(), a_call(upstream="time", **LEASED))

    assert (await take_turn("git"), await take_turn("time")) == (False, True)


async def test_who_was_served_past_the_queue_is_the_next_to_wait(store: Store) -> None:
    await store.write(lambda tx: tx.call_queue.take_turn("git", BOB))
    await store.write(lambda tx: tx.call_queue.take_turn("git", ALICE))
    await insert(store, a_call(principal=ALICE), a_call(principal=BOB))

    assert [call.principal for call in await lease(store)] == [BOB, ALICE]


async def test_a_call_that_goes_on_from_its_handle_is_leased_as_it_is(store: Store) -> None:
    """Also to be cancelled, and while it still waits for answers."""
    call = a_call(dispatched_at=START, handle=TASK, cancel_requested=True, status=CallStatus.INPUT_REQUIRED, runs=1)
    await insert(store, call)

    assert await lease(store) == [replace(call, **LEASED)]


async def test_principals_take_turns_and_each_is_served_oldest_first(store: Store) -> None:
    alices = [a_call(principal=ALICE) for _ in range(4)]
    bobs = [a_call(principal=BOB) for _ in range(2)]
    await insert(store, *alices, *bobs)

    leased = await lease(store, limit=5)

    assert [call.id for call in leased] == [call.id for call in (alices[0], bobs[0], alices[1], bobs[1], alices[2])]


async def test_turns_go_on_from_one_lease_to_the_next(store: Store) -> None:
    await insert(store, *(a_call(principal=ALICE) for _ in range(4)), *(a_call(principal=BOB) for _ in range(2)))

    served = [(await lease(store, limit=1))[0].principal for _ in range(6)]

    assert served == [ALICE, BOB, ALICE, BOB, ALICE, ALICE]


async def test_an_owner_prolongs_the_leases_that_it_names_and_nobody_elses(store: Store) -> None:
    mine, too, let_go = a_call(**LEASED), a_call(**LEASED), a_call(**LEASED)
    other = a_call(**(LEASED | {"lease_owner": "runner-2"}))
    await insert(store, mine, too, let_go, other)
    named, later = [mine.id, too.id, other.id], UNTIL + timedelta(seconds=30)

    held = await store.write(lambda tx: tx.call_queue.extend_leases("runner-1", named, until=later))

    assert set(held) == {mine.id, too.id}
    assert await store.read(lambda tx: tx.calls.get(mine.id)) == replace(mine, lease_until=later)
    assert await store.read(lambda tx: tx.calls.get(let_go.id)) == let_go
    assert await store.read(lambda tx: tx.calls.get(other.id)) == other


async def test_lapsed_are_the_running_calls_that_nobody_drives(store: Store) -> None:
    run_out = a_call(**LEASED)
    run_out_dispatched = a_call(**LEASED, dispatched_at=START)
    adrift = a_call(phase=CallPhase.RUNNING, dispatched_at=START, status=CallStatus.INPUT_REQUIRED)
    held = a_call(**(LEASED | {"lease_until": UNTIL + timedelta(milliseconds=1)}), dispatched_at=START)
    queued = a_call(dispatched_at=START, handle=TASK)
    parked = a_call(phase=CallPhase.PARKED, dispatched_at=START, handle=TASK)
    ended = apply_completion(a_call(dispatched_at=START), completion_from_result(b"{}", is_error=False), now=START, result_retention_seconds=60)
    await insert(store, run_out, run_out_dispatched, adrift, held, queued, parked, ended)

    assert await lapsed(store) == [run_out.id, run_out_dispatched.id, adrift.id]
    assert await lapsed(store, limit=2) == [run_out.id, run_out_dispatched.id]


async def test_overdue_are_the_waiting_calls_past_their_deadline(store: Store) -> None:
    queued = a_call(deadline_at=UNTIL)
    parked = a_call(deadline_at=UNTIL, phase=CallPhase.PARKED, status=CallStatus.INPUT_REQUIRED, dispatched_at=START)
    await insert(
        store,
        queued,
        parked,
        a_call(deadline_at=UNTIL + timedelta(milliseconds=1)),
        a_call(deadline_at=UNTIL, **LEASED),
        a_call(deadline_at=UNTIL, phase=CallPhase.ENDED, status=CallStatus.FAILED),
    )

    overdue = await store.read(lambda tx: tx.call_queue.find_past_deadline(now=UNTIL, limit=10))

    assert sorted(call.id for call in overdue) == [queued.id, parked.id]


async def test_what_others_have_leased_is_abandoned_and_ones_own_is_not(store: Store) -> None:
    left = [a_call(**LEASED | {"lease_owner": "another"}), a_call(**LEASED | {"lease_owner": None})]
    mine = a_call(**LEASED | {"lease_owner": "me"})
    await insert(store, *left, mine, a_call(), a_call(phase=CallPhase.PARKED))

    async def abandoned(limit: int) -> set[str]:
        calls = await store.read(lambda tx: tx.call_queue.find_leased_by_others(owner="me", limit=limit))
        return {call.id for call in calls}

    assert await abandoned(10) == {call.id for call in left}
    assert len(await abandoned(1)) == 1


async def test_a_stale_token_writes_nothing_after_the_lease_went_to_another(store: Store) -> None:
    call = a_call()
    await insert(store, call)
    (leased,) = await lease(store)
    queued = enter_phase(leased, CallPhase.QUEUED, now=START)
    await store.write(lambda tx: tx.calls.update(queued, CallChange.QUEUED, expected=leased.status, lease_token="lease_1"))
    (again,) = await store.write(
        lambda tx: tx.call_queue.lease_queued("git", owner="runner-2", token="lease_2", until=UNTIL, limit=1)
    )

    stale = await store.write(
        lambda tx: tx.calls.update(leased, CallChange.QUEUED, expected=CallStatus.WORKING, lease_token=leased.lease_token)
    )

    assert not stale
    assert await store.read(lambda tx: tx.calls.get(call.id)) == again


async def test_expired_are_the_ended_calls_past_their_day(store: Store) -> None:
    ended = apply_completion(a_call(), completion_from_result(b"{}", is_error=False), now=START, result_retention_seconds=30)
    kept = apply_completion(a_call(), completion_from_result(b"{}", is_error=False), now=START, result_retention_seconds=31)
    await insert(store, ended, kept, a_call())

    assert await store.read(lambda tx: tx.call_queue.find_expired(now=UNTIL, limit=10)) == [ended]
