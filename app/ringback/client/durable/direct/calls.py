"""Calls on one MCP server: starts each in the most durable way that the server offers, and follows it from its position."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from ringback.asyncio_tasks import end_tasks
from ringback.client.durable.clock import RETRY_BACKOFF
from ringback.client.durable.direct import legacy_tasks, streams, tasks
from ringback.client.durable.direct.completions import CANCELLED, completion_from_failure
from ringback.client.durable.direct.connection import DirectConnection, use_connection
from ringback.client.durable.direct.rounds import run_rounds
from ringback.client.durable.direct.server import McpCommand, McpServer
from ringback.client.durable.errors import CallNotStarted, DurableCallError, NotRejoinable
from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.record import (
    CallRecord,
    LegacyTaskPosition,
    PlainPosition,
    RoundPosition,
    StreamedPosition,
    TaskPosition,
)
from ringback.protocol.errors import (
    CredentialsRejected,
    CredentialsRequired,
    RequestFailed,
    RequestNotSent,
    SessionNotFound,
    UpstreamError,
)
from ringback.protocol.sessions import LegacySessionId
from ringback.protocol.tasks import TASKS_EXTENSION, declares_legacy_tasks, supports_legacy_task

_LOST_WITH_ITS_PROCESS: Final = (
    "The server does not keep this call for another connection, and the process that requested it no longer waits for it. "
    "The tool may have run. Check before you repeat the call."
)
_NOT_SENT: Final = (
    "The process that requested this call ended before it sent it. The tool has not run; request it again."
)
_LEASED_ELSEWHERE: Final = (
    "Only the process that requested this call can cancel it: the server keeps it for that process's connection alone."
)
CANCEL_OVERDUE_SECONDS: Final = 5.0
"""For the cancellation of a call whose time is over, as for those of the SDK. Its stored events get as long before that."""
STATE_POLL_SECONDS: Final = 1.0
"""How often a join looks whether another process has written the result."""
_Work = Callable[[DirectConnection], Awaitable[None]]


class DirectCalls:
    def __init__(self, server: McpServer | McpCommand) -> None:
        self._server = server
        self._tools: dict[str, Mapping[str, Any]] = {}
        """By name, as the server first listed them."""
        self._uses_tasks = isinstance(server, McpServer) or server.keeps_tasks
        """Whether another connection finds the server's tasks. Those of a command end with its process."""

    async def run_call(self, call: LocalCall) -> None:
        """Run the call until it ends, asks for input, or has used up its `timeout_seconds`."""
        left = _get_seconds_left(call)
        if left is None:
            await self._run_until_ended(call)
            return
        if left <= 0.0:
            await self._read_stored_end(call)
        running = asyncio.create_task(self._run_until_ended(call))
        timer = asyncio.create_task(call.clock.sleep(max(0.0, left)))
        try:
            await asyncio.wait([running, timer], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
                return
        finally:
            await end_tasks([running, timer])
        await self._end_overdue(call)

    async def _read_stored_end(self, call: LocalCall) -> None:
        """No process followed the call at its time limit, so it may have ended in time. A task shows that when cancelled."""
        position = call.record.position
        if isinstance(position, StreamedPosition):
            with suppress(RequestFailed, TimeoutError):
                async with asyncio.timeout(CANCEL_OVERDUE_SECONDS):
                    await self._resume_stream(call, position, attempts=1)

    async def _end_overdue(self, call: LocalCall) -> None:
        """Cancel the call at the server, if it answers in time, and save that its time is over."""
        call.is_overdue = True
        with suppress(DurableCallError, TimeoutError):
            async with asyncio.timeout(CANCEL_OVERDUE_SECONDS):
                await self.cancel_call(call)
        await call.complete(CANCELLED)

    async def _run_until_ended(self, call: LocalCall) -> None:
        if call.record.position is None and call.has_lease:
            await self._start_call(call)
        attempts = 0
        while call.record.completion is None and not call.record.input_requests:
            attempts += 1
            try:
                await self._follow_call(call, attempts)
            except (CredentialsRejected, CredentialsRequired) as failure:
                raise DurableCallError(f"{failure} Check the headers of McpTarget, then join again.") from failure
            except RequestFailed:
                await call.clock.sleep(RETRY_BACKOFF.pause_seconds(attempts))
            await call.refresh()

    async def cancel_call(self, call: LocalCall) -> None:
        match call.record.position:
            case TaskPosition() as position:
                await self._run_for_user(call, lambda connection: tasks.cancel_task(connection, call, position))
            case LegacyTaskPosition() as position:
                cancelling = self._run_in_task_session(
                    call, position, lambda connection: legacy_tasks.cancel_legacy_task(connection, call, position)
                )
                await _translate(cancelling)
            case StreamedPosition() as position:
                await self._run_for_user(
                    call,
                    lambda connection: streams.cancel_stream(connection, call, position),
                    rejoined=streams.get_session_id(position),
                )
            case RoundPosition():
                await call.complete(CANCELLED)
            case _ if call.is_leased_elsewhere:
                raise NotRejoinable(_LEASED_ELSEWHERE)
            case None:
                await call.complete(CANCELLED)
            case _:
                raise NotRejoinable(_LOST_WITH_ITS_PROCESS)

    async def check_questions(self, call: LocalCall) -> None:
        """No process follows a call that waits for answers, so the next join finds out that its time is over."""
        position, left = call.record.position, _get_seconds_left(call)
        if left is not None and left <= 0.0:
            await self._end_overdue(call)
        elif isinstance(position, TaskPosition):  # of a round, the state alone knows the questions
            with suppress(RequestFailed):
                await self._run(call, lambda connection: tasks.read_task(connection, call, position))

    async def answer_call(self, call: LocalCall, responses: Mapping[str, Mapping[str, Any]]) -> None:
        position = call.record.position
        if isinstance(position, TaskPosition):
            await self._run_for_user(call, lambda connection: tasks.answer_task(connection, call, position, responses))
            return

        def add_answers(record: CallRecord) -> dict[str, Any]:
            """Leaves the answers of other processes as they are: to other questions, and to these if they came first."""
            added = {key: response for key, response in responses.items() if key in record.input_requests}
            return {
                "input_requests": {key: asked for key, asked in record.input_requests.items() if key not in added},
                "input_responses": {**record.input_responses, **added},
            }

        await call.save_changes(add_answers)

    # -- start --

    async def _start_call(self, call: LocalCall) -> None:
        try:
            await self._run(call, lambda connection: self._start_on(connection, call))
        except RequestFailed as failure:
            await call.save()  # a position that was not saved yet
            if not call.has_lease:
                return  # another process has sent the request, or this one has, and the server keeps the call
            may_have_run = call.record.position is not None and not isinstance(failure, RequestNotSent)
            if not call.started.is_set() and not may_have_run:
                raise CallNotStarted(f"The tool was not called: {failure}") from failure
            await call.complete(completion_from_failure(failure))

    async def _start_on(self, connection: DirectConnection, call: LocalCall) -> None:
        tool = await self._find_tool(connection, call.record.request.tool)
        start, may_be_kept = self._select_start(connection, call, tool)
        if not may_be_kept and call.requires_rejoin:
            raise NotRejoinable(
                "The server has neither tasks nor resumable sessions, so no other connection can join the call. "
                "The tool was not called."
            )
        if not await call.keep_lease(position=PlainPosition()):
            return  # the lease lapsed meanwhile, and another process sends the request or has said that it was not sent
        if not may_be_kept:
            call.started.set()
        await start(connection)

    def _select_start(
        self, connection: DirectConnection, call: LocalCall, tool: Mapping[str, Any] | None
    ) -> tuple[_Work, bool]:
        """How the call starts, and whether the server may keep it for another connection."""
        protocol = connection.protocol
        if protocol.is_modern:
            may_be_task = self._uses_tasks and protocol.has_extension(TASKS_EXTENSION)
            return lambda each: run_rounds(each, call, tool, uses_tasks=self._uses_tasks), may_be_task
        if (
            self._uses_tasks
            and tool is not None
            and declares_legacy_tasks(protocol.capabilities)
            and supports_legacy_task(tool)
        ):
            return lambda each: legacy_tasks.start_legacy_task(each, call), True
        return lambda each: streams.start_stream(each, call), connection.session_id is not None

    async def _find_tool(self, connection: DirectConnection, name: str) -> Mapping[str, Any] | None:
        """The tool's list entry, where it is needed: for headers (modern), and for tasks (legacy)."""
        protocol = connection.protocol
        if not protocol.is_modern and not declares_legacy_tasks(protocol.capabilities):
            return None
        if name not in self._tools:
            tool = await connection.find_tool(name)
            if tool is None:
                return None  # not remembered: the server may list it later
            self._tools[name] = tool
        return self._tools[name]

    # -- follow --

    async def _follow_call(self, call: LocalCall, attempts: int) -> None:
        match call.record.position:
            case TaskPosition() as position:
                await self._run(call, lambda connection: tasks.follow_task(connection, call, position))
            case LegacyTaskPosition() as position:
                await self._run_in_task_session(
                    call, position, lambda connection: legacy_tasks.follow_legacy_task(connection, call, position)
                )
            case StreamedPosition() as position:
                await self._resume_stream(call, position, attempts)
            case RoundPosition():
                await self._run(call, lambda connection: self._run_next_round(connection, call))
            case _ if call.is_leased_elsewhere:
                await call.clock.sleep(STATE_POLL_SECONDS)  # the holder writes the result into the state
            case PlainPosition():
                raise NotRejoinable(_LOST_WITH_ITS_PROCESS)
            case _ if await call.revoke_lease():
                raise CallNotStarted(_NOT_SENT)
            case _:
                await call.clock.sleep(STATE_POLL_SECONDS)  # it has sent the request meanwhile, or has its lease again

    async def _run_next_round(self, connection: DirectConnection, call: LocalCall) -> None:
        """Another process may have sent the first round, so this one may not know the tool yet."""
        tool = await self._find_tool(connection, call.record.request.tool)
        await run_rounds(connection, call, tool, uses_tasks=self._uses_tasks)

    async def _resume_stream(self, call: LocalCall, position: StreamedPosition, attempts: int) -> None:
        """A server that asks for longer pauses than ours gets them (2025-11-25)."""
        read_seconds = streams.READ_TIMEOUT.pause_seconds(attempts)
        retry_seconds = await use_connection(
            self._server,
            lambda connection: streams.resume_stream(connection, call, position, read_seconds=read_seconds),
            handle=call.handle,
            rejoined=streams.get_session_id(position),
        )
        if call.record.completion is None:
            await call.clock.sleep(max(streams.RESUME_BACKOFF.pause_seconds(attempts), retry_seconds))

    # -- connections --

    async def _run(self, call: LocalCall, work: _Work, *, rejoined: LegacySessionId | None = None) -> None:
        expects_modern = isinstance(call.record.position, TaskPosition | RoundPosition)
        await use_connection(self._server, work, handle=call.handle, rejoined=rejoined, expects_modern=expects_modern)

    async def _run_in_task_session(self, call: LocalCall, position: LegacyTaskPosition, work: _Work) -> None:
        """Servers with authorization let any session read a task, so one that lost its session is polled in a new one."""
        try:
            await self._run(call, work, rejoined=legacy_tasks.get_session_id(position))
        except SessionNotFound:
            await self._run(call, work)

    async def _run_for_user(self, call: LocalCall, work: _Work, *, rejoined: LegacySessionId | None = None) -> None:
        """Like `_run`, with errors for the user."""
        await _translate(self._run(call, work, rejoined=rejoined))


def _get_seconds_left(call: LocalCall) -> float | None:
    """None if the call has no time limit."""
    seconds = call.record.request.timeout_seconds
    return None if seconds is None else call.handle.created_at.timestamp() + seconds - call.clock.now()


async def _translate(work: Awaitable[None]) -> None:
    try:
        await work
    except UpstreamError as failure:
        raise DurableCallError(f"The server refused: {failure.error.get('message', '')!s:.200}") from failure
    except RequestFailed as failure:
        raise DurableCallError(f"{failure} Try again.") from failure
