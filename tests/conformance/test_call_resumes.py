"""When clients came back for their calls, as every store keeps it."""

from datetime import timedelta
from functools import partial

from ringback.domain.call_resumes import RESUMES_STORED_MAX, CallResume, ResumeSurface, fit_resumes
from ringback.domain.call_rows import Tombstone
from ringback.domain.ports import Store, Transaction
from tests.support.builders import make_call
from tests.support.clock import START
from tests.support.examples import ALICE

CALL = make_call()
GONE = make_call()


def resume(seconds: int, *, surface: ResumeSurface = ResumeSurface.REST_RESULT, resumes: int = 1) -> CallResume:
    return CallResume(call_id=CALL.id, resumed_at=START + timedelta(seconds=seconds), surface=surface, resumes=resumes)


async def test_resumes_of_a_call_are_counted_and_go_with_it(store: Store) -> None:
    await store.write(lambda tx: tx.calls.insert(CALL))
    foreign = CallResume(call_id=GONE.id, resumed_at=START, surface=ResumeSurface.TOOL)
    rows = [resume(1), resume(2, surface=ResumeSurface.TOOL), resume(1, resumes=3), foreign]

    await store.write(lambda tx: tx.call_resumes.add(rows))

    stored = await store.read(lambda tx: tx.call_resumes.list_of_calls([CALL.id, GONE.id]))
    assert stored == [resume(1, resumes=4), resume(2, surface=ResumeSurface.TOOL)]

    async def bury(tx: Transaction) -> None:
        await tx.tombstones.archive(
            Tombstone(call_id=CALL.id, principal=ALICE, idempotency_key=None, request_hash="", expired_at=START)
        )

    await store.write(bury)
    assert not await store.read(lambda tx: tx.call_resumes.list_of_calls([CALL.id]))


async def test_a_client_that_polls_all_day_adds_few_rows(store: Store) -> None:
    await store.write(lambda tx: tx.calls.insert(CALL))

    async def add(tx: Transaction, seconds: int) -> None:
        stored = await tx.call_resumes.list_of_calls([CALL.id])
        await tx.call_resumes.add(fit_resumes(stored, [resume(seconds), resume(seconds + 1)]))

    for seconds in range(0, 2 * RESUMES_STORED_MAX, 2):
        await store.write(partial(add, seconds=seconds))

    stored = await store.read(lambda tx: tx.call_resumes.list_of_calls([CALL.id]))
    assert [row.resumes for row in stored] == [1] * (RESUMES_STORED_MAX - 1) + [RESUMES_STORED_MAX + 1]
    assert [row.resumed_at for row in stored] == sorted(row.resumed_at for row in stored)
