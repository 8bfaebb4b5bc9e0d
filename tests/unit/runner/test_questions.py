"""Questions of a tool in its call's own session, put to the call and answered."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from ringback.domain.call import CallCompletion, CallOutcome, CallStatus
from ringback.domain.inputs import INPUT_BYTES_MAX
from ringback.runner.drivers.questions import run_with_elicitations
from tests.support.desks import PaperDesk
from tests.support.examples import CALL
from tests.support.limits import WAIT_SECONDS
from tests.support.sessions import Answering, Held

ASKING: Final = replace(CALL, accepts_input=True)
YES: Final[dict[str, Any]] = {"action": "accept", "content": {}}


def question(message: str = "Really?") -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"message": message}}


def held() -> Held:
    return Answering({}).held


async def until(reached: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT_SECONDS):
        while not reached():  # noqa: ASYNC110 - a list of a fake rings no bell
            await asyncio.sleep(0)


class Working:
    """A tool's work, beside which questions come and go."""

    def __init__(self, session: Held, desk: PaperDesk) -> None:
        self._session = session
        self._done = asyncio.Event()
        self._task = asyncio.create_task(run_with_elicitations(session, desk, self._work()))

    async def hear(self, name: str, asked: dict[str, Any] | None) -> None:
        await until(lambda: self._session.on_question is not None)
        assert self._session.on_question is not None
        self._session.on_question(name, asked)

    async def result(self, *, let_go: bool = True) -> str | CallCompletion:
        if let_go:
            self._done.set()
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._task

    async def _work(self) -> str:
        await self._done.wait()
        return "done"


async def test_questions_are_answered_one_by_one_as_the_answers_come() -> None:
    session, desk = held(), PaperDesk(ASKING)
    working = Working(session, desk)
    await working.hear("1", question())
    await working.hear("2", question("Sure?"))
    await until(lambda: len(desk.call.input_requests) == 2)
    keys = {request.name: key for key, request in desk.call.input_requests.items()}

    desk.answer({keys["2"]: YES})
    await until(lambda: session.replied)
    still_asked = [request.name for request in desk.call.input_requests.values()]
    desk.answer({keys["1"]: YES})
    await until(lambda: len(session.replied) == 2)

    assert await working.result() == "done"
    assert still_asked == ["1"]
    assert session.replied == [("2", YES), ("1", YES)]
    assert (desk.call.status, desk.call.input_responses) == (CallStatus.WORKING, {})


async def test_a_question_that_is_taken_back_is_not_asked_any_more() -> None:
    session, desk = held(), PaperDesk(ASKING)
    working = Working(session, desk)
    await working.hear("1", question())
    await until(lambda: desk.call.input_requests)
    await working.hear("1", None)
    await until(lambda: not desk.call.input_requests)

    assert await working.result() == "done"
    assert desk.call.status is CallStatus.WORKING


async def test_a_question_of_before_is_asked_on_and_answered_by_its_name() -> None:
    desk = PaperDesk(ASKING)
    await desk.ask({"7": question()})
    session = held()
    working = Working(session, desk)
    await until(lambda: session.on_question is not None)
    round_before = desk.call.input_round

    desk.answer(dict.fromkeys(desk.call.input_requests, YES))
    await until(lambda: session.replied)

    assert await working.result() == "done"
    assert session.replied == [("7", YES)]
    assert desk.call.input_round == round_before


async def test_more_than_can_be_kept_fails_the_call() -> None:
    session, desk = held(), PaperDesk(ASKING)
    working = Working(session, desk)
    await working.hear("1", question("x" * INPUT_BYTES_MAX))

    ending = await working.result(let_go=False)

    assert isinstance(ending, CallCompletion)
    assert ending.outcome is CallOutcome.UPSTREAM_ERROR


async def test_nobody_is_heard_when_the_starter_cannot_answer() -> None:
    session = held()
    working = Working(session, PaperDesk(CALL))
    for _ in range(10):
        await asyncio.sleep(0)

    assert session.on_question is None
    assert await working.result() == "done"
