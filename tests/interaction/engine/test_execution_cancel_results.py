"""An upstream may respond after a cancel request: a result counts; an error confirms the cancellation."""

import asyncio

import pytest

from ringback.domain.call import Call
from ringback.domain.call_outcome import CallCompletion, CallOutcome, completion_from_upstream_error, failed_completion
from ringback.runner import execution
from ringback.upstreams.errors import UpstreamUnreachable
from tests.support.builders import make_call
from tests.support.calls import request_cancel
from tests.support.engine import WAIT_SECONDS, BlockingTool, Engine, OnProgress, ScriptedUpstreams
from tests.support.stored_work import COMPLETED_RESULT

CANCEL_RESPONSES = [
    (COMPLETED_RESULT, CallOutcome.RESULT),
    (completion_from_upstream_error({"code": 0, "message": "Request cancelled"}), CallOutcome.CANCELLED),
    (failed_completion(CallOutcome.UPSTREAM_ERROR, "The result is larger than 9 bytes."), CallOutcome.UPSTREAM_ERROR),
]


class UpstreamsRespondingToCancel(ScriptedUpstreams):
    """A tool that ends with `answer` while the cancellation is still on its way to the upstream."""

    def __init__(self, answer: CallCompletion) -> None:
        super().__init__(self._run_until_cancelled)
        self.inside, self._cancel_received = asyncio.Event(), asyncio.Event()
        self._answer = answer

    async def _run_until_cancelled(self, call: Call, on_progress: OnProgress) -> CallCompletion:  # noqa: ARG002 - what a tool is given
        self.inside.set()
        await self._cancel_received.wait()
        return self._answer

    async def cancel_call(self, call: Call) -> CallCompletion:
        self._cancel_received.set()
        for _ in range(100):  # far more turns than the answer needs to be taken
            await asyncio.sleep(0)
        return await super().cancel_call(call)


@pytest.mark.parametrize(
    ("answer", "outcome"), CANCEL_RESPONSES, ids=["result", "its own error", "an answer that cannot be kept"]
)
async def test_an_upstreams_response_to_a_cancellation_decides_the_outcome(
    engine: Engine, answer: CallCompletion, outcome: CallOutcome
) -> None:
    call = make_call(deadline_at=engine.clock.now().replace(year=2100))
    upstreams = UpstreamsRespondingToCancel(answer)
    await engine.insert_calls(call)
    async with engine.running_runner(upstreams):
        await asyncio.wait_for(upstreams.inside.wait(), WAIT_SECONDS)
        await request_cancel(engine, call)
        (ended,) = await engine.wait_until_final(call)

    assert ended.outcome is outcome
    assert upstreams.cancelled


class UpstreamsWithoutRoom(ScriptedUpstreams):
    """A driver whose first cancel request finds no session, because its connection is being closed."""

    has_room = False

    async def cancel_call(self, call: Call) -> CallCompletion:
        if not self.has_room:
            self.has_room = True
            raise UpstreamUnreachable("it is being closed. Try again.")
        return await super().cancel_call(call)


async def test_a_cancellation_that_finds_no_session_is_sent_again_while_the_call_goes_on(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ended the execution like a bug: nothing cancelled the call until its lease had run out."""
    monkeypatch.setattr(execution, "CANCEL_RETRY_SECONDS", 0.01)
    tool = BlockingTool()
    call, upstreams = make_call(deadline_at=engine.clock.now().replace(year=2100)), UpstreamsWithoutRoom(tool)
    await engine.insert_calls(call)
    async with engine.running_runner(upstreams):
        await tool.wait_until_inside(1)
        await request_cancel(engine, call)
        (ended,) = await engine.wait_until_final(call)

    assert (ended.outcome, len(upstreams.cancelled)) == (CallOutcome.CANCELLED, 1)
