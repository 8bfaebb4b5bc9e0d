"""Notifications to clients, and the publishers that run for a legacy session.

modern   notifications go only to the stream of a subscriptions/listen request, and end with it
legacy   notifications go to the session's own stream (GET), which the client may not have open, and end with the session

A publisher of a session outlives the request that started it, so it has the context of that request without message and
headers (`detach_context`). A message may have megabytes, and a principal has thousands of publishers.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Final, cast

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from starlette.requests import Request

from ringback.domain.mcp_sessions import SUBSCRIPTIONS_MAX
from ringback.domain.principal import Principal
from ringback.mcp_server.gateway import Gateway, TaskSpawner
from ringback.mcp_server.incoming_messages import detach_scope
from ringback.mcp_server.request_context import RequestContext

log = logging.getLogger(__name__)

SendNotification = Callable[[str, Mapping[str, Any]], Awaitable[None]]
"""Sends a notification: its method and its params."""
Publisher = Callable[[], Coroutine[Any, Any, None]]
SESSION_PUBLISHERS_MAX: Final = SUBSCRIPTIONS_MAX
"""Tasks and subscriptions of one session. Each takes 15 KB (measured, as resident memory)."""
PRINCIPAL_PUBLISHERS_MAX: Final = 10_000
"""Those of all sessions of a principal in this process. A publisher of a call also reads the call once a minute
(`change_publisher`)."""
PROGRESS_TOKEN_LENGTH_MAX: Final = 256
"""Characters of a progress token that a publisher keeps. With a longer one, a task sends no progress after its creation."""

_STATE_KEY: Final = "ringback.session_notifications"


class RawNotification(types.Notification[dict[str, Any], str]):
    """Sends params unchanged."""


async def send_to_session(context: RequestContext, method: str, params: Mapping[str, Any]) -> None:
    """Send on the session's own stream; the notification is lost if the client has none open."""
    await context.sdk_context.session.send_notification(
        cast("Any", RawNotification(method=method, params=dict(params)))
    )


async def send_to_request(context: RequestContext, method: str, params: Mapping[str, Any]) -> None:
    """Send on the request's response stream; waits for a client that reads slowly."""
    notification = cast("Any", RawNotification(method=method, params=dict(params)))
    await context.sdk_context.session.send_notification(notification, related_request_id=context.sdk_context.request_id)


class SessionNotifications:
    """The publishers of one session by name; each runs until it is done or stopped, or the session ends."""

    def __init__(self, background_tasks: TaskSpawner, principal: Principal, counts: Counter[Principal]) -> None:
        """`counts` are the publishers of each principal, of all sessions."""
        self.stored_uris = set[str]()
        """The stored subscriptions of the session, as this node knows them."""
        self._background_tasks = background_tasks
        self._principal = principal
        self._counts = counts
        self._publishers: dict[str, _PublisherTask] = {}

    def has_capacity_for(self, name: str) -> bool:
        """Whether a publisher of this name can start. It replaces the one that has the name already."""
        return name in self._publishers or (
            len(self._publishers) < SESSION_PUBLISHERS_MAX and self._counts[self._principal] < PRINCIPAL_PUBLISHERS_MAX
        )

    def start_publisher(self, name: str, publisher: Publisher) -> None:
        """Start a publisher; it replaces the one with the same name."""
        self.stop_publisher(name)
        self._publishers[name] = task = _PublisherTask()
        self._counts[self._principal] += 1
        self._background_tasks.spawn(self._run_publisher(name, publisher, task))

    def stop_publisher(self, name: str) -> None:
        if task := self._remove_publisher(name):
            task.stop()

    def stop_publishers(self) -> None:
        for name in list(self._publishers):
            self.stop_publisher(name)

    async def _run_publisher(self, name: str, publisher: Publisher, task: "_PublisherTask") -> None:
        await task.run(publisher)
        if self._publishers.get(name) is task:
            self._remove_publisher(name)

    def _remove_publisher(self, name: str) -> "_PublisherTask | None":
        if (task := self._publishers.pop(name, None)) is not None:
            self._counts[self._principal] -= 1
            if not self._counts[self._principal]:
                del self._counts[self._principal]
        return task


class _PublisherTask:
    """One publisher and the task that runs it; stopping it before it runs leaves no task to cancel."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._is_stopped = False

    def stop(self) -> None:
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()

    async def run(self, publisher: Publisher) -> None:
        self._task = asyncio.current_task()
        if self._is_stopped:
            self.stop()  # the publisher still starts, so that a waiting request learns that the subscription has ended
        try:
            await publisher()
        except Exception:  # an error must not affect other work: no client relies on these notifications
            log.exception("session.not_notified")
        finally:
            self._task = None  # a cancelled task keeps the frame of this method


def get_connection(context: RequestContext) -> Connection:
    """The connection of the session. Only it reports the session's end; its state is the session's."""
    connection: Connection = context.sdk_context.session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    return connection


def detach_context(context: RequestContext) -> RequestContext:
    """The context of a legacy request for its publishers: without message and headers, but for the progress token."""
    sdk_context = context.sdk_context
    connection = get_connection(context)
    detached = ServerRequestContext[Any, Any](
        session=ServerSession(cast("Any", connection.outbound), connection),
        lifespan_context=sdk_context.lifespan_context,
        protocol_version=sdk_context.protocol_version,
        method=sdk_context.method,
        meta=_select_progress_token(context),
        request=None if sdk_context.request is None else Request(detach_scope(sdk_context.request.scope)),
    )
    return replace(context, sdk_context=detached)


def _select_progress_token(context: RequestContext) -> types.RequestParamsMeta | None:
    match context.meta.get("progress_token"):
        case int() as token:
            return {"progress_token": token}
        case str() as token if len(token) <= PROGRESS_TOKEN_LENGTH_MAX:
            return {"progress_token": token}
        case _:
            return None


def get_session_notifications(gateway: Gateway, context: RequestContext) -> SessionNotifications:
    """The notifications of the session, created on first use."""
    connection = get_connection(context)
    notifications: SessionNotifications | None = connection.state.get(_STATE_KEY)
    if notifications is None:
        connection.state[_STATE_KEY] = notifications = SessionNotifications(
            gateway.background_tasks, context.caller.principal, gateway.quotas.session_publishers
        )
        connection.exit_stack.callback(notifications.stop_publishers)
    return notifications
