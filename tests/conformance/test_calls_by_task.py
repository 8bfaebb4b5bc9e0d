"""Finding the call of an upstream's task."""

from ringback.domain.call import Call, CallPhase, Handle, apply_completion
from ringback.domain.call_outcome import completion_from_result
from ringback.domain.call_rows import CallChange
from ringback.domain.ports import Store, Transaction
from tests.support.builders import make_call
from tests.support.clock import START
from tests.support.examples import ALICE, BOB

HANDLE = Handle(driver="task", data={"task_id": "task-1"})


async def insert(store: Store, *calls: Call) -> None:
    async def work(tx: Transaction) -> None:
        for call in calls:
            await tx.calls.insert(call)

    await store.write(work)


async def find_by_task(store: Store, upstream: str, task_id: str) -> Call | None:
    return await store.read(lambda tx: tx.call_queue.find_by_task(upstream, task_id))


async def test_a_call_is_found_by_its_task_for_any_owner(store: Store) -> None:
    call = make_call(handle=HANDLE, principal=BOB)
    await insert(store, make_call(), call, make_call(handle=Handle(driver="task", data={"task_id": "task-2"})))
    assert await find_by_task(store, call.upstream, "task-1") == call


async def test_a_task_id_of_another_upstream_finds_no_call(store: Store) -> None:
    await insert(store, make_call(handle=HANDLE, upstream="git"))
    assert await find_by_task(store, "time", "task-1") is None
    assert await find_by_task(store, "git", "task-9") is None


async def test_a_call_that_has_ended_is_still_found(store: Store) -> None:
    call = make_call(handle=Handle(driver="legacy_task", data={"task_id": "task-1", "session": {"id": "s"}}))
    await insert(store, call)
    ended = apply_completion(
        call, completion_from_result(b"{}", is_error=False), now=START, result_retention_seconds=60
    )
    await store.write(lambda tx: tx.calls.update(ended, CallChange.ENDED, expected=call.status, lease_token=None))

    found = await find_by_task(store, call.upstream, "task-1")
    assert found is not None
    assert (found.id, found.phase) == (call.id, CallPhase.ENDED)
    assert found.handle == Handle(driver="legacy_task", data={"task_id": "task-1"})


async def test_equal_task_ids_of_two_accounts_find_the_call_of_each(store: Store) -> None:
    calls = {owner: make_call(handle=HANDLE, principal=owner) for owner in (ALICE, BOB)}
    await insert(store, *calls.values())

    for owner, call in calls.items():
        found = await store.write(
            lambda tx, owner=owner: tx.call_queue.find_by_task("git", "task-1", principal=owner, lock=True)
        )
        assert found == call
