"""The queue of calls for the runner and the janitor: turns, leases, and calls whose runner is lost."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from ringback.domain.call import (
    Call,
    CallPhase,
    CallStatus,
    Handle,
    apply_completion,
    count_argument_bytes,
    enter_phase,
)
from ringback.domain.call_outcome import completion_from_result
from ringback.domain.call_rows import LEASED_ARGUMENT_BYTES_MAX, CallChange
from ringback.domain.ids import CallId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from tests.support.builders import make_call
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

UNTIL = START + timedelta(seconds=30)
LEASED = {"phase": CallPhase.RUNNING, "lease_owner": "runner-1", "lease_token": "lease_1", "lease_until": UNTIL}
TASK = Handle(driver="task", data={"task_id": "1"})


async def insert_calls(store: Store, *calls: Call) -> None:
    async def work(tx: Transaction) -> None:
        for call in calls:
            await tx.calls.insert(call)

    await store.write(work)


async def lease_calls(store: Store, *, limit: int = 10, upstream: str = "git", **options: Any) -> Sequence[Call]:
    return await store.write(
        lambda tx: tx.call_queue.lease_queued(
            upstream, owner="runner-1", token="lease_1", until=UNTIL, limit=limit, **options
        )
    )


async def list_abandoned(store: Store, *, limit: int = 10) -> list[CallId]:
    calls = await store.read(lambda tx: tx.call_queue.find_lease_expired(now=UNTIL, limit=limit))
    return [call.id for call in calls]


async def test_a_leased_call_carries_its_lease_and_is_leased_once(store: Store) -> None:
    call = make_call()
    await insert_calls(store, call)

    first, second = await lease_calls(store), await lease_calls(store)

    assert first == [replace(call, **LEASED)]
    assert [each.arguments for each in first] == [call.arguments]
    assert second == []
    assert await store.read(lambda tx: tx.calls.get(call.id)) == first[0]


@pytest.mark.requirement("R34")
async def test_large_arguments_are_not_read_with_the_lease(store: Store) -> None:
    """A lease of two hundred calls with a megabyte each took four seconds of the event loop."""
    large = {"text": "x" * LEASED_ARGUMENT_BYTES_MAX}
    fits = {"text": "x" * (LEASED_ARGUMENT_BYTES_MAX - count_argument_bytes({"text": ""}, {"m": 1}))}
    calls = [make_call(arguments=large, meta={"m": 1}), make_call(arguments=fits, meta={"m": 1})]
    await insert_calls(store, *calls)

    leased = await lease_calls(store)

    assert [(each.arguments, each.meta) for each in leased] == [(None, {}), (fits, {"m": 1})]
    whole = await store.read(lambda tx: tx.calls.get_whole(calls[0].id))
    assert whole is not None
    assert (whole.arguments, whole.meta, whole.lease_token) == (large, {"m": 1}, "lease_1")


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
async def test_calls_of_other_upstreams_and_states_are_not_leased(store: Store, unfit: dict[str, object]) -> None:
    await insert_calls(store, make_call(**unfit))

    assert await lease_calls(store) == []


async def test_each_principal_gets_its_limit_less_the_calls_that_it_has(store: Store) -> None:
    """Calls that run for hours otherwise take all places of an upstream, and turns come only when one is free again."""
    calls = [make_call(principal=principal) for principal in (ALICE, ALICE, ALICE, BOB, BOB, BOB)]
    await insert_calls(store, *calls)

    leased = await lease_calls(store, limit=10, limit_each=3, running={ALICE: 1, Principal("carol"): 5})

    assert Counter(call.principal for call in leased) == {ALICE: 2, BOB: 3}
    assert {call.id for call in leased} == {call.id for call in (*calls[:2], *calls[3:])}
    assert await lease_calls(store, limit=10, limit_each=3, running={ALICE: 4}) == []
    assert [call.id for call in await lease_calls(store)] == [calls[2].id]


async def test_with_more_principals_than_places_each_has_its_turn(store: Store) -> None:
    """A store then reads one call of each principal: all calls of a thousand principals cost seconds."""
    principals = [Principal(f"principal-{number}") for number in range(1_100)]
    calls = [make_call(principal=principal) for principal in (*principals, *principals[:8])]
    await insert_calls(store, *calls)
    options: dict[str, Any] = {"limit": 4, "limit_each": 3, "running": {principals[1]: 3}, "without": [principals[3]]}

    rounds = [await lease_calls(store, **options) for _ in range(2)]

    indexes = [0, 2, 4, 5], [6, 7, 8, 9]
    assert [[call.id for call in leased] for leased in rounds] == [[calls[each].id for each in few] for few in indexes]


async def test_with_fewer_principals_than_places_each_gets_several(store: Store) -> None:
    calls = [make_call(principal=principal) for principal in (ALICE, ALICE, ALICE, BOB, Principal("carol"))]
    await insert_calls(store, *calls)

    leased = await lease_calls(store, limit=3, running={Principal("carol"): 2}, limit_each=2)

    assert [call.id for call in leased] == [calls[0].id, calls[3].id, calls[1].id]


async def test_upstreams_are_found_that_have_queued_calls(store: Store) -> None:
    await insert_calls(
        store, make_call(), make_call(), make_call(upstream="time", **LEASED), make_call(upstream="files")
    )

    found = await store.write(lambda tx: tx.call_queue.find_queued_upstreams(["time", "git", "none"]))

    assert set(found) == {"git"}


async def test_a_turn_past_the_queue_is_taken_only_if_the_upstream_has_no_queue(store: Store) -> None:
    async def take_turn(upstream: str) -> bool:
        return await store.write(lambda tx: tx.call_queue.take_turn(upstream, ALICE))

    await insert_calls(store, make_call(), make_call(upstream="time", **LEASED))

    assert (await take_turn("git"), await take_turn("time")) == (False, True)


async def test_a_principal_that_passes_the_queue_again_and_again_still_waits_longest_next(store: Store) -> None:
    for principal in (BOB, ALICE, ALICE, ALICE):
        assert await store.write(partial(take_turn, principal=principal))
    await insert_calls(store, make_call(principal=ALICE), make_call(principal=BOB))

    leased = await lease_calls(store, limit=1)

    assert [call.principal for call in leased] == [BOB]


async def take_turn(tx: Transaction, principal: Principal) -> bool:
    return await tx.call_queue.take_turn("git", principal)


async def test_a_principal_served_past_the_queue_waits_longest_next(store: Store) -> None:
    await store.write(lambda tx: tx.call_queue.take_turn("git", BOB))
    await store.write(lambda tx: tx.call_queue.take_turn("git", ALICE))
    await insert_calls(store, make_call(principal=ALICE), make_call(principal=BOB))

    assert [call.principal for call in await lease_calls(store)] == [BOB, ALICE]


async def test_a_scheduled_call_is_queued_when_its_time_has_come_and_not_before(store: Store) -> None:
    first, second = (
        make_call(phase=CallPhase.SCHEDULED, not_before=START + timedelta(minutes=minutes)) for minutes in (1, 2)
    )
    await insert_calls(store, second, first)

    async def queue_due(minutes: int) -> datetime | None:
        now = START + timedelta(minutes=minutes)
        return await store.write(lambda tx: tx.scheduled_calls.queue_due(now=now, limit=10))

    assert await queue_due(0) == first.not_before
    assert await lease_calls(store) == []
    assert await queue_due(1) == second.not_before
    assert [call.id for call in await lease_calls(store)] == [first.id]
    assert await queue_due(2) is None
    assert await lease_calls(store) == [replace(second, **LEASED)]


async def test_scheduled_calls_are_queued_in_bounded_steps_earliest_first(store: Store) -> None:
    calls = [
        make_call(phase=CallPhase.SCHEDULED, not_before=START + timedelta(seconds=seconds)) for seconds in (3, 1, 2)
    ]
    await insert_calls(store, *calls)
    later = START + timedelta(hours=1)

    left = await store.write(lambda tx: tx.scheduled_calls.queue_due(now=later, limit=2))

    assert left == calls[0].not_before
    assert {call.id for call in await lease_calls(store)} == {calls[1].id, calls[2].id}


async def test_a_scheduled_call_is_no_queue_that_a_new_call_waits_behind(store: Store) -> None:
    await insert_calls(store, make_call(phase=CallPhase.SCHEDULED, not_before=START + timedelta(hours=1)))

    assert await store.write(lambda tx: tx.call_queue.take_turn("git", ALICE))


async def test_a_call_with_a_handle_is_leased_unchanged(store: Store) -> None:
    """Also if it is to be cancelled, or still waits for input."""
    call = make_call(dispatched_at=START, handle=TASK, cancel_requested=True, status=CallStatus.INPUT_REQUIRED, runs=1)
    await insert_calls(store, call)

    assert await lease_calls(store) == [replace(call, **LEASED)]


async def test_principals_take_turns_and_each_is_served_oldest_first(store: Store) -> None:
    alices = [make_call(principal=ALICE) for _ in range(4)]
    bobs = [make_call(principal=BOB) for _ in range(2)]
    await insert_calls(store, *alices, *bobs)

    leased = await lease_calls(store, limit=5)

    assert [call.id for call in leased] == [call.id for call in (alices[0], bobs[0], alices[1], bobs[1], alices[2])]


async def test_calls_of_a_principal_that_is_left_out_stay_queued(store: Store) -> None:
    alices, bobs = [make_call(principal=ALICE) for _ in range(3)], [make_call(principal=BOB) for _ in range(2)]
    await insert_calls(store, *alices, *bobs)

    assert [call.id for call in await lease_calls(store, limit=4, without=[ALICE])] == [call.id for call in bobs]
    assert [call.id for call in await lease_calls(store)] == [call.id for call in alices]


async def test_turns_continue_from_one_lease_to_the_next(store: Store) -> None:
    await insert_calls(
        store, *(make_call(principal=ALICE) for _ in range(4)), *(make_call(principal=BOB) for _ in range(2))
    )

    served = [(await lease_calls(store, limit=1))[0].principal for _ in range(6)]

    assert served == [ALICE, BOB, ALICE, BOB, ALICE, ALICE]


async def test_an_owner_extends_only_the_leases_that_it_names(store: Store) -> None:
    mine, too, let_go = make_call(**LEASED), make_call(**LEASED, cancel_requested=True), make_call(**LEASED)
    other = make_call(**(LEASED | {"lease_owner": "runner-2"}))
    await insert_calls(store, mine, too, let_go, other)
    named, later = [mine.id, too.id, other.id], UNTIL + timedelta(seconds=30)

    held = await store.write(lambda tx: tx.call_queue.extend_leases("runner-1", named, until=later))

    assert held == {mine.id: False, too.id: True}
    assert await store.read(lambda tx: tx.calls.get(mine.id)) == replace(mine, lease_until=later)
    assert await store.read(lambda tx: tx.calls.get(let_go.id)) == let_go
    assert await store.read(lambda tx: tx.calls.get(other.id)) == other


async def test_abandoned_calls_are_running_calls_whose_lease_has_expired(store: Store) -> None:
    run_out = make_call(**LEASED)
    run_out_dispatched = make_call(**LEASED, dispatched_at=START)
    adrift = make_call(phase=CallPhase.RUNNING, dispatched_at=START, status=CallStatus.INPUT_REQUIRED)
    held = make_call(**(LEASED | {"lease_until": UNTIL + timedelta(milliseconds=1)}), dispatched_at=START)
    queued = make_call(dispatched_at=START, handle=TASK)
    parked = make_call(phase=CallPhase.PARKED, dispatched_at=START, handle=TASK)
    ended = apply_completion(
        make_call(dispatched_at=START),
        completion_from_result(b"{}", is_error=False),
        now=START,
        result_retention_seconds=60,
    )
    await insert_calls(store, run_out, run_out_dispatched, adrift, held, queued, parked, ended)

    assert await list_abandoned(store) == [run_out.id, run_out_dispatched.id, adrift.id]
    assert await list_abandoned(store, limit=2) == [run_out.id, run_out_dispatched.id]


async def test_overdue_calls_are_the_waiting_calls_past_their_deadline(store: Store) -> None:
    queued = make_call(deadline_at=UNTIL)
    parked = make_call(deadline_at=UNTIL, phase=CallPhase.PARKED, status=CallStatus.INPUT_REQUIRED, dispatched_at=START)
    await insert_calls(
        store,
        queued,
        parked,
        make_call(deadline_at=UNTIL + timedelta(milliseconds=1)),
        make_call(deadline_at=UNTIL, **LEASED),
        make_call(deadline_at=UNTIL, phase=CallPhase.ENDED, status=CallStatus.FAILED),
    )

    overdue = await store.read(lambda tx: tx.call_queue.find_past_deadline(now=UNTIL, grace_end=START, limit=10))

    assert sorted(call.id for call in overdue) == [queued.id, parked.id]


async def test_leased_calls_are_found_by_their_owner(store: Store) -> None:
    left = [make_call(**LEASED | {"lease_owner": "another"}), make_call(**LEASED | {"lease_owner": None})]
    mine = make_call(**LEASED | {"lease_owner": "me"})
    await insert_calls(store, *left, mine, make_call(), make_call(phase=CallPhase.PARKED))

    async def find_leased(*, own: bool, limit: int = 10) -> set[str]:
        calls = await store.read(lambda tx: tx.call_queue.find_leased(owner="me", own=own, limit=limit))
        return {call.id for call in calls}

    assert await find_leased(own=False) == {call.id for call in left}
    assert len(await find_leased(own=False, limit=1)) == 1
    assert await find_leased(own=True) == {mine.id}


async def test_a_stale_token_writes_nothing_after_the_lease_went_to_another(store: Store) -> None:
    call = make_call()
    await insert_calls(store, call)
    (leased,) = await lease_calls(store)
    queued = enter_phase(leased, CallPhase.QUEUED, now=START)
    await store.write(
        lambda tx: tx.calls.update(queued, CallChange.QUEUED, expected=leased.status, lease_token="lease_1")
    )
    (again,) = await store.write(
        lambda tx: tx.call_queue.lease_queued("git", owner="runner-2", token="lease_2", until=UNTIL, limit=1)
    )

    stale = await store.write(
        lambda tx: tx.calls.update(
            leased, CallChange.QUEUED, expected=CallStatus.WORKING, lease_token=leased.lease_token
        )
    )

    assert not stale
    assert await store.read(lambda tx: tx.calls.get(call.id)) == again


async def test_expired_calls_are_the_ended_calls_past_their_retention(store: Store) -> None:
    ended = apply_completion(
        make_call(), completion_from_result(b"{}", is_error=False), now=START, result_retention_seconds=30
    )
    kept = apply_completion(
        make_call(), completion_from_result(b"{}", is_error=False), now=START, result_retention_seconds=31
    )
    await insert_calls(store, ended, kept, make_call())

    assert await store.read(lambda tx: tx.tombstones.find_expired(now=UNTIL, limit=10, bytes_max=10)) == [ended]
