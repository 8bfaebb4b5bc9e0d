"""The driver for the tasks of 2025-11-25, which the client asks for with the call.

    tools/call {task: {ttl}} ──▶ {task: {taskId}} ──▶ handle kept ──▶ tasks/get, tasks/get, … ──▶ tasks/result
                                     notifications/tasks/status, where they arrive, save some waiting

`tasks/result` waits for the end, and while a task is `input_required` it is also what its questions come along. A task belongs
to whoever is authorised, or, in servers that know nobody, to the session: so it is asked for in the session of its handle, and
when that is gone in a new one. Only then does nobody know.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

from ringback.domain.call import CANCELLED, Call, Ending, Handle, Outcome, failed
from ringback.domain.clock import Clock
from ringback.runner.drivers.base import Desk, Session, SessionName, StatefulSession, Told
from ringback.runner.drivers.followed import TASK_ID_LENGTH_MAX, FollowedTask
from ringback.runner.drivers.plain import tool_params
from ringback.runner.drivers.questions import while_answering
from ringback.runner.drivers.results import (
    ending_of_error,
    ending_of_failure,
    ending_of_result,
    progress_into,
)
from ringback.runner.failures import Forgotten, NoAnswer, NotSent, Refused, RequestFailed
from ringback.waits import first_of

LEGACY_TASK: Final = "legacy_task"
"""Names the handles made here."""
TTL_MARGIN_SECONDS: Final = 24 * 60 * 60.0
"""How long after the call's deadline an upstream is asked to keep its task: this service may be down just then."""


def runs_as_task(session: Session, tool: str) -> bool:
    """Whether the upstream takes this tool's calls as tasks: it says so for all tools, and for this one."""
    match session.negotiated.capabilities:
        case {"tasks": {"requests": {"tools": {"call": _}}}}:
            listed = session.tool(tool)
            execution = listed.raw.get("execution") if listed is not None else None
        case _:
            return False
    return isinstance(execution, dict) and cast("dict[str, Any]", execution).get("taskSupport") in {
        "required",
        "optional",
    }


class LegacyTaskDriver:
    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock

    async def run(self, session: Session, desk: Desk) -> Ending:
        handle = _handle_of(desk.call) or await self._start(session, desk)
        if isinstance(handle, Ending):
            return handle
        task_id, name = handle.data["task_id"], _session_of(handle)
        async with session.listen({"taskIds": [task_id]}, declare={}) as told, _held(session, name) as held:
            try:
                with held.named():
                    return await self._follow(task_id, held, desk, told)
            except Forgotten:
                return await self._follow(task_id, session.stateful, desk, told)

    async def cancel(self, session: Session, call: Call) -> Ending | None:
        """Before there is a task, abandoning the request is the cancellation. A task is cancelled when that is answered."""
        if (handle := _handle_of(call)) is None:
            return CANCELLED
        try:
            async with _held(session, _session_of(handle)) as held:
                task = await held.request("tasks/cancel", {"taskId": handle.data["task_id"]})
        except Refused:
            return None  # it has ended, or is gone: following it shows which
        return CANCELLED if task.get("status") == "cancelled" else None

    async def _start(self, session: Session, desk: Desk) -> Ending | Handle:
        """The handle, which is kept by then; or the ending of a call that became no task."""
        left = (desk.call.deadline_at - self._clock.now()).total_seconds()
        task = {"ttl": round((max(0.0, left) + TTL_MARGIN_SECONDS) * 1000)}
        try:
            result = await session.request(
                "tools/call", {**tool_params(desk.call), "task": task}, on_progress=progress_into(desk)
            )
        except RequestFailed as failure:
            return ending_of_failure(failure)
        match result:
            case {"task": {"taskId": str() as task_id}} if 0 < len(task_id) <= TASK_ID_LENGTH_MAX:
                handle = legacy_handle(task_id, session.stateful.name)
                await desk.keep(handle)
                return handle
            case {"task": _}:
                return failed(Outcome.UPSTREAM_ERROR, "The upstream made a task without a usable taskId.")
            case _:
                return ending_of_result(result)

    async def _follow(self, task_id: str, held: StatefulSession, desk: Desk, told: Told | None) -> Ending:
        following = _Following(task_id, held, desk, told, clock=self._clock)
        return await while_answering(held, desk, following.run())


class _Following:
    """One task, from its handle to its end, in one session."""

    def __init__(self, task_id: str, held: StatefulSession, desk: Desk, told: Told | None, *, clock: Clock) -> None:
        self._params = {"taskId": task_id}
        self._held = held
        self._desk = desk
        self._told = told
        self._clock = clock
        self._followed = FollowedTask(desk, clock=clock)

    async def run(self) -> Ending:
        while True:
            try:
                if (ending := await self._look()) is not None:
                    return ending
                self._followed.answered()
            except NotSent:
                raise
            except RequestFailed as failure:
                if (ending := self._followed.why_lost(failure)) is not None:
                    return ending
            await first_of(self._clock.sleep(self._followed.poll_seconds), self._hint())

    async def _look(self) -> Ending | None:
        """The end, if there is one. What kind, tasks/result says: a result that is an error has the status `failed` too."""
        task = await self._held.request("tasks/get", self._params)
        self._followed.pace(task.get("pollInterval"))
        match task.get("status"):
            case "working":
                await self._followed.tell(task.get("statusMessage"))
                return None
            case "cancelled":
                return CANCELLED
            case "input_required" | "completed" | "failed" as status:
                return await self._result(status)
            case _:
                raise NoAnswer("The upstream answered with something that is no task.")

    async def _result(self, status: str) -> Ending | None:
        """What the tool answered. Of a task that wants input this is asked for early, because its questions come along."""
        try:
            return ending_of_result(await self._held.request("tasks/result", self._params))
        except Refused as refused:
            return None if status == "input_required" else ending_of_error(refused.error)

    async def _hint(self) -> None:
        if self._told is None or await self._told.next() is None:
            self._told = None
            await asyncio.Event().wait()


@asynccontextmanager
async def _held(session: Session, name: SessionName | None) -> AsyncGenerator[StatefulSession]:
    """The session of that name; any will do for a task that was made in one without."""
    if name is None or session.stateful.name == name:
        yield session.stateful
    else:
        async with session.rejoined(name) as rejoined:
            yield rejoined


def legacy_handle(task_id: str, name: SessionName | None) -> Handle:
    """What finds a task again: in that session, or in whichever there is."""
    session = None if name is None else {"id": name.session_id, "protocol_version": name.protocol_version}
    return Handle(driver=LEGACY_TASK, data={"task_id": task_id, "session": session})


def _handle_of(call: Call) -> Handle | None:
    return call.handle if call.handle is not None and call.handle.driver == LEGACY_TASK else None


def _session_of(handle: Handle) -> SessionName | None:
    if (session := handle.data["session"]) is None:
        return None
    return SessionName(session_id=session["id"], protocol_version=session["protocol_version"])
