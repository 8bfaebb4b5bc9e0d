"""Whether an upstream knows a task, and the handle by which its driver will find it: what adoption needs of the runner."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from mcp_types import METHOD_NOT_FOUND

from ringback.domain.call import Handle
from ringback.domain.errors import InvalidRequest, Unavailable, UnknownUpstream
from ringback.runner.conversation import Conversation, Links
from ringback.runner.drive import UpstreamUnreachable
from ringback.runner.drivers import Session
from ringback.runner.drivers.legacy_task import legacy_handle
from ringback.runner.drivers.task import TASK, TASKS
from ringback.runner.failures import Refused, RequestFailed

LOOK_SECONDS: Final = 10.0
"""Somebody waits for the answer, and nothing is lost by asking again."""
_STATUSES: Final = frozenset({"working", "input_required", "completed", "failed", "cancelled"})


class UpstreamTasks:
    """Implements `services.adoption.TaskLookup`."""

    def __init__(self, connections: Mapping[str, Links]) -> None:
        self._connections = connections

    async def find(self, upstream: str, task_id: str, *, visible: frozenset[str] | None) -> Handle | None:
        connection = self._connections.get(upstream)
        if connection is None or (visible is not None and upstream not in visible):
            raise UnknownUpstream("There is no upstream of this name. List them: GET /v1/upstreams")
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                return await _find(Conversation(connection, await connection.live(), own=False), task_id)
        except (TimeoutError, UpstreamUnreachable, RequestFailed):
            raise Unavailable(
                f"Upstream '{upstream}' does not tell of its tasks now. Nothing was adopted; try again. See how it is doing: "
                "GET /v1/upstreams"
            ) from None


async def _find(session: Session, task_id: str) -> Handle | None:
    handle, declared = _handle_for(session, task_id)
    try:
        task = await session.request("tasks/get", {"taskId": task_id}, declare=declared)
    except Refused as refusal:
        if refusal.error.get("code") == METHOD_NOT_FOUND:
            raise
        return None
    known = task.get("taskId") == task_id and task.get("status") in _STATUSES
    return handle if known else None


def _handle_for(session: Session, task_id: str) -> tuple[Handle, Mapping[str, Any] | None]:
    """The handle of the driver that suits the upstream, and the capabilities that asking for the task takes."""
    if session.negotiated.extends(TASKS):
        return Handle(driver=TASK, data={"task_id": task_id}), {"extensions": {TASKS: {}}}
    if not session.negotiated.modern and "tasks" in session.negotiated.capabilities:
        # Somebody else's session cannot be entered: what can be seen from here can be seen from any.
        return legacy_handle(task_id, None), None
    raise InvalidRequest("This upstream has no tasks that could be adopted: it does not offer any.")
