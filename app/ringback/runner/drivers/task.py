"""The driver for upstreams with the tasks extension (SEP-2663, 2026-07-28): the upstream's task is followed to its end.

    tools/call ──▶ CreateTaskResult ──▶ handle kept ──▶ tasks/get, tasks/get, … ──▶ completed | failed | cancelled
                                            notifications/tasks, where they are offered, save most of the asking
                                            tasks/update passes answers on; tasks/cancel asks for the end

The upstream alone decides whether a call becomes a task. It has no read timeout and needs none: the call's deadline decides.
An upstream that is away is asked again until it is back. One that no longer knows the task leaves nothing but `unknown`.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, cast

from ringback.domain.call import CANCELLED, Call, Ending, Handle, Outcome, failed
from ringback.domain.clock import Clock
from ringback.runner.drivers.base import Desk, Parked, Session, Told
from ringback.runner.drivers.followed import POLL_SECONDS_MIN, TASK_ID_LENGTH_MAX, FollowedTask
from ringback.runner.drivers.results import ending_of_error, ending_of_result
from ringback.runner.drivers.rounds import call_tool, cannot_answer, elicitation_of
from ringback.runner.failures import NoAnswer, Refused, RequestFailed

TASK: Final = "task"
"""Names the handles made here."""
TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension's identifier."""
LISTENING_SECONDS: Final = 30.0
"""Between two looks while the upstream tells by itself: a stream may lose what it told (no replay), so looking goes on."""


class TaskDriver:
    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock

    async def run(self, session: Session, desk: Desk) -> Ending | Parked:
        task_id = _task_id_of(desk.call)
        if task_id is None:
            result = await call_tool(session, desk, declare=declared(desk.call))
            if not isinstance(result, dict):
                return result
            if result.get("resultType") != "task":
                return ending_of_result(result)
            task_id = result.get("taskId")
            if not isinstance(task_id, str) or not 0 < len(task_id) <= TASK_ID_LENGTH_MAX:
                return failed(Outcome.UPSTREAM_ERROR, "The upstream made a task without a usable taskId.")
            await desk.keep(Handle(driver=TASK, data={"task_id": task_id}))
            await desk.passed_on(desk.call.input_responses)  # those of the rounds before: a task has keys of its own
        return await _Following(session, desk, task_id, clock=self._clock).run()

    async def cancel(self, session: Session, call: Call) -> Ending | None:
        """Before there is a task, abandoning the request is the cancellation; then the task itself tells how it ended."""
        task_id = _task_id_of(call)
        if task_id is None:
            return CANCELLED
        try:
            await session.request("tasks/cancel", {"taskId": task_id}, declare=declared(call))
        except Refused:
            return None  # gone, or without tasks/cancel: following it shows which
        return None


def declared(call: Call) -> Mapping[str, Any]:
    return {**elicitation_of(call), "extensions": {TASKS: {}}}


def _task_id_of(call: Call) -> str | None:
    return call.handle.data["task_id"] if call.handle is not None and call.handle.driver == TASK else None


class _Following:
    """One task, from its handle to its end."""

    def __init__(self, session: Session, desk: Desk, task_id: str, *, clock: Clock) -> None:
        self._session = session
        self._desk = desk
        self._task_id = task_id
        self._clock = clock
        self._followed = FollowedTask(desk, clock=clock)
        self._told: Told | None = None
        self._passed_on: set[str] = set()
        """The upstream may list a question for a moment after its answer arrived."""

    async def run(self) -> Ending:
        wanted = {"taskIds": [self._task_id]}
        async with self._session.listen(wanted, declare=declared(self._desk.call)) as told:
            self._told = told
            news: Mapping[str, Any] | None = None
            while True:
                try:
                    if (ending := await self._look(news)) is not None:
                        return ending
                except RequestFailed as failure:
                    if (ending := self._followed.why_lost(failure)) is not None:
                        return ending
                    await self._clock.sleep(self._followed.poll_seconds)
                    news = None
                else:
                    news = await self._wait()

    async def _look(self, news: Mapping[str, Any] | None) -> Ending | None:
        ending = await self._take(news or await self._request("tasks/get", {}))
        self._followed.answered()
        if ending is None and (answers := await self._desk.answers(0)):
            await self._pass_on(answers)
        return ending

    async def _request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        return await self._session.request(
            method, {"taskId": self._task_id, **params}, declare=declared(self._desk.call)
        )

    async def _take(self, task: Mapping[str, Any]) -> Ending | None:
        """What a DetailedTask says: the end, or what is asked, or how far it is."""
        self._followed.pace(task.get("pollIntervalMs"))
        match task.get("status"):
            case "completed":
                return ending_of_result(_object(task, "result"))
            case "failed":
                return ending_of_error(_object(task, "error"))
            case "cancelled":
                return CANCELLED
            case "input_required":
                return await self._ask(_object(task, "inputRequests"))
            case "working":
                await self._desk.ask({})
                await self._followed.tell(task.get("statusMessage"))
                return None
            case _:
                raise NoAnswer("The upstream answered with something that is no task.")

    async def _ask(self, requests: dict[str, Any]) -> Ending | None:
        if not self._desk.call.accepts_input:
            with suppress(Refused):
                await self._request("tasks/cancel", {})
            return cannot_answer()
        try:
            await self._desk.ask({name: request for name, request in requests.items() if name not in self._passed_on})
        except ValueError as problem:
            return failed(Outcome.UPSTREAM_ERROR, str(problem))
        return None

    async def _pass_on(self, answers: Mapping[str, Any]) -> None:
        try:
            await self._request("tasks/update", {"inputResponses": answers})
            self._passed_on.update(answers)
        except Refused:
            pass  # not taken: what is still listed is asked again, under a new key of ours
        await self._desk.passed_on(answers)
        self._followed.poll_seconds = POLL_SECONDS_MIN  # it goes on now, and says itself how often to ask

    async def _wait(self) -> Mapping[str, Any] | None:
        """Until it is time to look again; what the upstream told meanwhile, if it did."""
        if self._told is None:
            await self._desk.answers(self._followed.poll_seconds)
            return None
        hearing = asyncio.ensure_future(self._told.next())
        answering = asyncio.ensure_future(self._desk.answers(max(self._followed.poll_seconds, LISTENING_SECONDS)))
        try:
            await asyncio.wait({hearing, answering}, return_when=asyncio.FIRST_COMPLETED)
            if not hearing.done():
                answering.result()  # raises what it raised
                return None
            if (news := hearing.result()) is None:
                self._told = None
            return news
        finally:
            hearing.cancel()
            answering.cancel()
            await asyncio.gather(hearing, answering, return_exceptions=True)


def _object(task: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = task.get(key)
    if not isinstance(value, dict):
        raise NoAnswer(f"The upstream told of a task without its {key}.")
    return cast("dict[str, Any]", value)
