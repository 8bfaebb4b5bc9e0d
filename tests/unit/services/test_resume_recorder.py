"""The recorder of resumes: bounded, in batches, and no obstacle when the store fails."""

import asyncio

import pytest

from ringback.domain.call import Call, CallStatus
from ringback.domain.call_resumes import ResumeSurface
from ringback.domain.ports import Store
from ringback.services.calls import resume_recorder
from ringback.services.calls.resume_recorder import CallResumeRecorder
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.limits import WAIT_SECONDS
from tests.support.service import ServiceUnderTest


async def test_resumes_of_one_moment_are_one_row_and_a_full_buffer_takes_no_more(
    service: ServiceUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume_recorder, "PENDING_RESUMES_MAX", 2)
    monkeypatch.setattr(resume_recorder, "RESUME_BATCH_SIZE", 1)
    recorder = CallResumeRecorder(store=service.store, clock=FakeClock())
    calls = [make_call(status=CallStatus.COMPLETED) for _ in range(3)]
    open_call = make_call()
    for call in [*calls, open_call]:
        await service.store.write(lambda tx, call=call: tx.calls.insert(call))
    for call in [calls[0], calls[0], calls[1], calls[2], calls[0]]:
        recorder.record_read(call, ResumeSurface.TOOL)
    recorder.record_read(open_call, ResumeSurface.TOOL)

    await recorder.write_pending()

    stored = await read_rows(service.store, *calls, open_call)
    assert stored == [(calls[0].id, 3), (calls[1].id, 1)]


async def test_a_batch_that_the_store_refuses_is_lost_and_the_next_one_is_written(service: ServiceUnderTest) -> None:
    recorder = CallResumeRecorder(store=service.store, clock=FakeClock())
    call = make_call(status=CallStatus.COMPLETED)
    await service.store.write(lambda tx: tx.calls.insert(call))
    recorder.record_resume(call, ResumeSurface.TOOL)
    service.store.refusals = 1
    await recorder.write_pending()
    stop = asyncio.Event()
    recorder.record_resume(call, ResumeSurface.REST_RESUME)
    stop.set()

    async with asyncio.timeout(WAIT_SECONDS):
        await recorder.run(stop)

    assert await read_rows(service.store, call) == [(call.id, 1)]


async def read_rows(store: Store, *calls: Call) -> list[tuple[str, int]]:
    ids = [call.id for call in calls]
    rows = await store.read(lambda tx: tx.call_resumes.list_of_calls(ids))
    return [(row.call_id, row.resumes) for row in rows]
