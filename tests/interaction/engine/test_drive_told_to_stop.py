"""An upstream that is told to stop may answer once more: a result is the truth; an error says that it did as it was told."""

import asyncio

import pytest

from ringback.domain.call import Call, CallCompletion, CallOutcome, failed_completion, completion_from_upstream_error
from tests.support.builders import a_call
from tests.support.calls import ask_to_cancel
from tests.support.engine import DONE, WAIT_SECONDS, Engine, OnProgress, ScriptedUpstreams

ANSWERS = [
    (DONE, CallOutcome.RESULT),
    (completion_from_upstream_error({"code": 0, "message": "Request cancelled"}), CallOutcome.CANCELLED),
    (failed_completion(CallOutcome.UPSTREAM_ERROR, "The result is larger than 9 bytes."), CallOutcome.UPSTREAM_ERROR),
]


class AnsweringWhenToldToStop(ScriptedUpstreams):
    """A tool that ends with `answer` while its upstream is still being told to stop."""

    def __init__(self, answer: CallCompletion) -> None:
        super().__init__(self._until_told)
        self.inside, self._told = asyncio.Event(), asyncio.Event()
        self._answer = answer

    async def _until_told(self, call: Call, on_progress: OnProgress) -> CallCompletion:  # noqa: ARG002 - what a tool is given
        self.inside.set()
        await self._told.wait()
        return self._answer

    async def cancel(self, call: Call) -> CallCompletion:
        self._told.set()
        for _ in range(100):  # far more turns than the answer needs to be taken
            await asyncio.sleep(0)
        return await super().cancel(call)


@pytest.mark.parametrize(
    ("answer", "outcome"), ANSWERS, ids=["result", "its own error", "an answer that cannot be kept"]
)
async def test_what_an_upstream_answers_when_it_is_told_to_stop(
    engine: Engine, answer: CallCompletion, outcome: CallOutcome
) -> None:
    call = a_call(deadline_at=engine.clock.now().replace(year=2100))
    upstreams = AnsweringWhenToldToStop(answer)
    await engine.queue(call)
    async with engine.running(upstreams):
        await asyncio.wait_for(upstreams.inside.wait(), WAIT_SECONDS)
        await ask_to_cancel(engine, call)
        (ended,) = await engine.until_final(call)

    assert ended.outcome is outcome
    assert upstreams.told_to_stop
