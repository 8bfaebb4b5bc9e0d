"""Listeners receive each progress notification at once, although only some are stored."""

import asyncio

from ringback.domain.call import Call, Progress
from ringback.domain.call_outcome import CallCompletion
from ringback.domain.event import EventName
from tests.support.builders import make_call
from tests.support.engine import Engine, OnProgress, ScriptedUpstreams
from tests.support.stored_work import COMPLETED_RESULT
from tests.support.upstreams import WAIT_SECONDS

STEPS = 20


async def test_every_progress_notification_reaches_listeners_while_few_are_stored(engine: Engine) -> None:
    call = await engine.lease_call(make_call(deadline_at=engine.clock.now().replace(year=2100)))

    async def report_steps(_call: Call, on_progress: OnProgress) -> CallCompletion:
        for step in range(STEPS):
            await on_progress(Progress(progress=step))
        return COMPLETED_RESULT

    with engine.notification_hub.subscribe_call(call.id) as live:
        await asyncio.wait_for(engine.make_execution(call, ScriptedUpstreams(report_steps)).run(), WAIT_SECONDS)
        received = [(await asyncio.wait_for(anext(live), WAIT_SECONDS)).params for _ in range(STEPS)]

    assert received == [{"progress": step} for step in range(STEPS)]
    stored = [event.name for event in await engine.read_events()]
    assert stored.count(EventName.CALL_PROGRESS) <= 1
