"""Questions in a session of before 2026-07-28: the upstream sends a request while it works, and waits for the answer.

    upstream ──elicitation/create──▶ Questions ──ask──▶ the call: input_required, rings …hours…
             ◀──────── answer ────── reply ◀──answers── POST /v1/calls/{id}/input

Only a session that belongs to one call was told that it may ask, because such a request does not say which call it is about.
A question's name is the id of the upstream's request: the answer finds it also from another process, over the same session.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

from ringback.domain.call import Ending, Outcome, failed
from ringback.runner.drivers.base import Desk, StatefulSession
from ringback.waits import beside, first_of

T = TypeVar("T")

LOOK_AGAIN_SECONDS: Final = 60.0
"""How long a lost ring can delay an answer."""


class CannotBeAsked(Exception):
    """The upstream asks for what was not offered, or for too much."""


async def while_answering(held: StatefulSession, desk: Desk, work: Coroutine[Any, Any, T]) -> T | Ending:
    """What `work` returns, with the upstream's questions passed on meanwhile; an ending when they cannot be."""
    if not desk.call.accepts_input:
        return await work
    questions = _Questions(held, desk)
    with held.answering(questions.hear):
        try:
            return await beside(work, questions.run())
        except CannotBeAsked as problem:
            return failed(Outcome.UPSTREAM_ERROR, str(problem))


class _Questions:
    def __init__(self, held: StatefulSession, desk: Desk) -> None:
        self._held = held
        self._desk = desk
        self._news = asyncio.Event()
        # A question of before is asked on: its answer goes to the same session.
        self._asked: dict[str, Mapping[str, Any]] = {
            request.name: {"method": request.method, "params": request.params}
            for request in desk.call.input_requests.values()
        }

    def hear(self, name: str, request: Mapping[str, Any] | None) -> None:
        if request is None:
            self._asked.pop(name, None)
        else:
            self._asked[name] = request
        self._news.set()

    async def run(self) -> None:
        while True:
            if answers := await self._desk.answers(0):
                await self._pass_on(answers)
            self._news.clear()
            await self._ask()
            await first_of(self._news.wait(), self._desk.answers(LOOK_AGAIN_SECONDS))

    async def _pass_on(self, answers: Mapping[str, Any]) -> None:
        for name, answer in answers.items():
            await self._held.reply(name, answer)
            self._asked.pop(name, None)
        await self._desk.passed_on(answers)

    async def _ask(self) -> None:
        try:
            await self._desk.ask(dict(self._asked))
        except ValueError as problem:
            raise CannotBeAsked(str(problem)) from None
