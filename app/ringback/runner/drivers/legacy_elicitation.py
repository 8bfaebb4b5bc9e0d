"""Questions in a session of before 2026-07-28: the upstream sends a request while it works, and waits for the answer.

    upstream ──elicitation/create──▶ Questions ──ask──▶ the call: input_required, rings …hours…
             ◀──────── answer ────── reply ◀──answers── POST /v1/calls/{id}/input

Only a session that belongs to one call was told that it may ask, because such a request does not say which call it is about.
A question's name is the id of the upstream's request: the answer finds it also from another process, over the same session.
"""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar

from ringback.domain.call import CallCompletion, CallOutcome, failed_completion
from ringback.runner.drivers.driver import CallContext
from ringback.upstreams.session_ports import LegacySessionPort
from ringback.waits import run_with_helper, wait_first

T = TypeVar("T")

ANSWER_POLL_SECONDS: Final = 60.0
"""How long a lost ring can delay an answer."""


class UnsupportedElicitation(Exception):
    """The upstream asks for what was not offered, or for too much."""


async def run_with_elicitations(
    legacy_session: LegacySessionPort, context: CallContext, work: Coroutine[Any, Any, T]
) -> T | CallCompletion:
    """What `work` returns, with the upstream's questions passed on meanwhile; an ending when they cannot be."""
    if not context.call.accepts_input:
        return await work
    questions = _ElicitationRelay(legacy_session, context)
    with legacy_session.handle_elicitations(questions.on_elicitation):
        try:
            return await run_with_helper(work, questions.run())
        except UnsupportedElicitation as problem:
            return failed_completion(CallOutcome.UPSTREAM_ERROR, str(problem))


class _ElicitationRelay:
    def __init__(self, legacy_session: LegacySessionPort, context: CallContext) -> None:
        self._legacy_session = legacy_session
        self._context = context
        self._changed = asyncio.Event()
        # A question of before is asked on: its answer goes to the same session.
        self._pending: dict[str, Mapping[str, Any]] = {
            request.name: {"method": request.method, "params": request.params}
            for request in context.call.input_requests.values()
        }

    def on_elicitation(self, name: str, request: Mapping[str, Any] | None) -> None:
        if request is None:
            self._pending.pop(name, None)
        else:
            self._pending[name] = request
        self._changed.set()

    async def run(self) -> None:
        while True:
            if answers := await self._context.wait_for_answers(0):
                await self._send_answers(answers)
            self._changed.clear()
            await self._request_input()
            await wait_first(self._changed.wait(), self._context.wait_for_answers(ANSWER_POLL_SECONDS))

    async def _send_answers(self, answers: Mapping[str, Any]) -> None:
        for name, answer in answers.items():
            await self._legacy_session.answer_elicitation(name, answer)
            self._pending.pop(name, None)
        await self._context.mark_answers_sent(answers)

    async def _request_input(self) -> None:
        try:
            await self._context.request_input(dict(self._pending))
        except ValueError as problem:
            raise UnsupportedElicitation(str(problem)) from None
