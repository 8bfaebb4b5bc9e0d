"""Sends the questions of a legacy task to the client that waits in tasks/result, as `elicitation/create`.

Each waiting tasks/result sends all open questions, so a client that lost its stream gets them again when it reconnects. The
first answer counts, wherever it comes from; the same question on other streams is then cancelled. The wait of a client that has
disconnected ends: if it comes back, its request is handled again, and an answer that it still sends is stored in the call.
"""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR

from ringback.asyncio_tasks import end_tasks
from ringback.domain.call import Call
from ringback.domain.ids import CallId
from ringback.mcp_server import meta
from ringback.mcp_server.change_publisher import CallChanges
from ringback.mcp_server.elicitation import Question, can_elicit, elicit_input
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.task_serializer import related_task_meta
from ringback.waits import wait_first

RESULT_WAITERS_MAX: Final = 8
"""tasks/result requests of one session that wait for the same task. A broken connection may be noticed late, so a new request
of the session replaces the oldest one.
"""
QUESTION_SENT_MAX: Final = 3
"""How often a question is sent to one waiting tasks/result, with the reason why its last answer was refused."""


class TaskResultWaiters:
    """The waiting tasks/result requests by session and task."""

    def __init__(self) -> None:
        self._waiters: dict[tuple[str, CallId], list[asyncio.Event]] = {}

    @contextmanager
    def register_waiter(self, context: RequestContext, call: Call) -> Generator[asyncio.Event]:
        """The event is set when a newer request replaces this one."""
        key = context.mcp_session_id, call.id
        waiting = self._waiters.setdefault(key, [])
        if len(waiting) >= RESULT_WAITERS_MAX:
            waiting.pop(0).set()
        superseded = asyncio.Event()
        waiting.append(superseded)
        try:
            yield superseded
        finally:
            if superseded in waiting:
                waiting.remove(superseded)
            if not waiting and self._waiters.get(key) is waiting:  # a superseded waiter may leave after newer ones came
                del self._waiters[key]


class LegacyTaskElicitation:
    """Sends a task's questions to one waiting client until the task ends or the service stops."""

    def __init__(self, gateway: Gateway, context: RequestContext, call_changes: CallChanges) -> None:
        self._gateway = gateway
        self._context = context
        self._call_changes = call_changes
        self._elicitations: dict[str, asyncio.Task[bool]] = {}

    async def run(self, superseded: asyncio.Event) -> None:
        elicitation_task = asyncio.ensure_future(self._elicit_open_requests())
        try:
            await wait_first(
                asyncio.shield(elicitation_task),
                superseded.wait(),
                self._context.request_closed.wait(),
                self._gateway.lifecycle.shutdown_event.wait(),
            )
            if superseded.is_set():
                raise MCPError(INTERNAL_ERROR, "Newer requests of this session wait for the task's result.")
            if elicitation_task.done():
                elicitation_task.result()
            elif self._context.request_closed.is_set():
                raise MCPError(INTERNAL_ERROR, "The connection of this request was lost. The task continues.")
        finally:
            await end_tasks([elicitation_task, *self._elicitations.values()])

    async def _elicit_open_requests(self) -> None:
        while (call := await self._call_changes.next_change()) and not call.is_final:
            for key, request in call.input_requests.items():
                if key not in self._elicitations and can_elicit(self._context, [request]):
                    question = Question(call, key, {**related_task_meta(call), **meta.build_call_meta(call)})
                    self._elicitations[key] = asyncio.create_task(
                        elicit_input(self._gateway, self._context, question, sent_max=QUESTION_SENT_MAX)
                    )
            for key in self._elicitations.keys() - call.input_requests.keys():
                self._elicitations[key].cancel()
