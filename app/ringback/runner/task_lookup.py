"""Looks up a task of an upstream, and makes the handle with which its driver continues it. Task adoption uses this."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from mcp_types import METHOD_NOT_FOUND

from ringback.domain.call import Handle
from ringback.domain.errors import InvalidRequest, Unavailable, UnknownUpstream
from ringback.protocol.errors import RequestFailed, UpstreamError
from ringback.protocol.tasks import TASKS_EXTENSION
from ringback.runner.drivers.legacy_task import make_legacy_task_handle
from ringback.runner.drivers.task import TASK_DRIVER
from ringback.upstreams.call_session import CallSession, SessionSource
from ringback.upstreams.errors import UpstreamUnreachable
from ringback.upstreams.session_ports import CallSessionPort

LOOKUP_TIMEOUT_SECONDS: Final = 10.0
"""The client waits for the response, and may repeat the request without loss."""
_TASK_STATUSES: Final = frozenset({"working", "input_required", "completed", "failed", "cancelled"})


class UpstreamTaskLookup:
    """Implements `services.adoption.TaskLookup`."""

    def __init__(self, connections: Mapping[str, SessionSource]) -> None:
        self._connections = connections

    async def find_task(
        self, upstream: str, task_id: str, *, visible_upstreams: frozenset[str] | None
    ) -> Handle | None:
        connection = self._connections.get(upstream)
        if connection is None or (visible_upstreams is not None and upstream not in visible_upstreams):
            raise UnknownUpstream("There is no upstream of this name. List them: GET /v1/upstreams")
        try:
            async with asyncio.timeout(LOOKUP_TIMEOUT_SECONDS):
                return await _find_in_session(
                    CallSession(connection, await connection.get_shared_session(), is_dedicated=False), task_id
                )
        except (TimeoutError, UpstreamUnreachable, RequestFailed):
            raise Unavailable(
                f"Upstream '{upstream}' cannot report its tasks now. Nothing was adopted; try again. See its state: "
                "GET /v1/upstreams"
            ) from None


async def _find_in_session(session: CallSessionPort, task_id: str) -> Handle | None:
    handle, client_capabilities = _make_handle(session, task_id)
    try:
        task = await session.send_request("tasks/get", {"taskId": task_id}, client_capabilities=client_capabilities)
    except UpstreamError as error:
        if error.error.get("code") == METHOD_NOT_FOUND:
            raise
        return None
    is_known = task.get("taskId") == task_id and task.get("status") in _TASK_STATUSES
    return handle if is_known else None


def _make_handle(session: CallSessionPort, task_id: str) -> tuple[Handle, Mapping[str, Any] | None]:
    """The handle for the upstream's driver, and the client capabilities that tasks/get requires."""
    if session.protocol.has_extension(TASKS_EXTENSION):
        return Handle(driver=TASK_DRIVER, data={"task_id": task_id}), {"extensions": {TASKS_EXTENSION: {}}}
    if not session.protocol.is_modern and "tasks" in session.protocol.capabilities:
        # The task was created in another client's session, which cannot be joined. A task visible here is visible in any.
        return make_legacy_task_handle(task_id, None), None
    raise InvalidRequest("This upstream does not support tasks, so no task of it can be adopted.")
