"""Looks up a task of an upstream, and makes the handle with which its driver continues it. Task adoption uses this."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Final, Protocol

from mcp_types import METHOD_NOT_FOUND

from ringback.domain.call import Handle, ServerFingerprint
from ringback.domain.errors import InvalidRequest, SignInRequired, Unavailable, UnknownUpstream
from ringback.domain.principal import Principal
from ringback.protocol.errors import LoginRequired, RequestFailed, TokensUnreadable, UpstreamError
from ringback.protocol.tasks import TASKS_EXTENSION
from ringback.runner.drivers.legacy_task import make_legacy_task_handle
from ringback.runner.drivers.task import TASK_DRIVER
from ringback.upstreams.call_session import CallSession, SessionSource
from ringback.upstreams.catalog.tool_catalog import upstream_unavailable
from ringback.upstreams.connection_problems import ConnectionProblem
from ringback.upstreams.errors import UpstreamLoginRequired, UpstreamTokensUnreadable, UpstreamUnreachable
from ringback.upstreams.session_ports import CallSessionPort

LOOKUP_TIMEOUT_SECONDS: Final = 10.0
"""The client waits for the response, and may repeat the request without loss."""
_TASK_STATUSES: Final = frozenset({"working", "input_required", "completed", "failed", "cancelled"})


class TaskConnection(SessionSource, Protocol):
    """The connection on which a task is looked up."""

    @property
    def server_fingerprint(self) -> ServerFingerprint:
        """Of the server that knows the task."""
        ...


class TaskConnections(Protocol):
    """Where tasks are looked up."""

    def __contains__(self, upstream: str) -> bool: ...

    async def check_login(self, upstream: str, principal: Principal) -> None:
        """Replace the principal's connection if it belongs to an earlier login. Call it before `use_connection`."""
        ...

    def list_shared_names(self, upstream: str, server_fingerprint: ServerFingerprint | None) -> Sequence[str]:
        """As in `services.calls.adoption.TaskLookup`."""
        ...

    def use_connection(self, upstream: str, principal: Principal) -> AbstractContextManager[TaskConnection]:
        """The connection that this principal uses. Raises `UpstreamUnreachable`."""
        ...


class UpstreamTaskLookup:
    """Implements `services.calls.adoption.TaskLookup`."""

    def __init__(self, connections: TaskConnections) -> None:
        self._connections = connections

    def list_shared_names(self, upstream: str, server_fingerprint: ServerFingerprint | None) -> Sequence[str]:
        return self._connections.list_shared_names(upstream, server_fingerprint)

    async def find_task(
        self, upstream: str, task_id: str, *, principal: Principal, visible_upstreams: frozenset[str] | None
    ) -> Handle | None:
        if upstream not in self._connections or (visible_upstreams is not None and upstream not in visible_upstreams):
            raise UnknownUpstream("There is no upstream of this name. List them: GET /v1/upstreams")
        await self._connections.check_login(upstream, principal)
        try:
            with self._connections.use_connection(upstream, principal) as connection:
                async with asyncio.timeout(LOOKUP_TIMEOUT_SECONDS):
                    session = CallSession(connection, await connection.get_shared_session(), is_dedicated=False)
                    handle = await _find_in_session(session, task_id)
                    return handle and replace(handle, server_fingerprint=connection.server_fingerprint)
        except (TokensUnreadable, UpstreamTokensUnreadable):
            raise upstream_unavailable(upstream, ConnectionProblem.TOKENS_UNREADABLE) from None
        except (UpstreamLoginRequired, LoginRequired):
            raise SignInRequired(
                f"Upstream '{upstream}' requires a login before it reports its tasks. Nothing was adopted. See where to sign "
                "in: GET /v1/upstreams",
                upstream=upstream,
            ) from None
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
    status = task.get("status")
    is_known = task.get("taskId") == task_id and isinstance(status, str) and status in _TASK_STATUSES
    return handle if is_known else None


def _make_handle(session: CallSessionPort, task_id: str) -> tuple[Handle, Mapping[str, Any] | None]:
    """The handle for the upstream's driver, and the client capabilities that tasks/get requires."""
    if session.protocol.has_extension(TASKS_EXTENSION):
        return Handle(driver=TASK_DRIVER, data={"task_id": task_id}), {"extensions": {TASKS_EXTENSION: {}}}
    if not session.protocol.is_modern and "tasks" in session.protocol.capabilities:
        # The task was created in another client's session, which cannot be joined. A task visible here is visible in any.
        return make_legacy_task_handle(task_id, None), None
    raise InvalidRequest("This upstream does not support tasks, so no task of it can be adopted.")
