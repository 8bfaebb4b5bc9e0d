"""Notifications to a client, and what is told in a session of before 2026-07-28 without being asked.

2026-07-28   nothing but on the stream of a subscriptions/listen request, and it ends with the request
before       on the session's own stream (GET), which the client may or may not have open; it ends with the session
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, cast

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext

from ringback.mcp_server.gateway import TaskSpawner

log = logging.getLogger(__name__)

SendNotification = Callable[[str, Mapping[str, Any]], Awaitable[None]]
"""Sends a notification: its method and its params."""
Publisher = Callable[[], Coroutine[Any, Any, None]]
SESSION_PUBLISHERS_MAX: Final = 256
"""Calls and resources that one session hears of at once. Each takes 6 KB (measured); a client that follows more has a bug."""

_STATE_KEY: Final = "ringback.told"


class RawNotification(types.Notification[dict[str, Any], str]):
    """Params go out as they are."""


async def send_to_session(sdk_context: ServerRequestContext[Any, Any], method: str, params: Mapping[str, Any]) -> None:
    """On the session's own stream; lost when the client has none open, which is for the client to know."""
    await sdk_context.session.send_notification(cast("Any", RawNotification(method=method, params=dict(params))))


async def send_to_request(sdk_context: ServerRequestContext[Any, Any], method: str, params: Mapping[str, Any]) -> None:
    """On the stream of the request's answer; waits for a client that reads slowly."""
    notification = cast("Any", RawNotification(method=method, params=dict(params)))
    await sdk_context.session.send_notification(notification, related_request_id=sdk_context.request_id)


class SessionNotifications:
    """What is being told in one session: each piece of work under its name, until it is over, stopped, or the session ends."""

    def __init__(self, background_tasks: TaskSpawner) -> None:
        self._background_tasks = background_tasks
        self._publishers: dict[str, _PublisherTask] = {}

    def has_capacity_for(self, name: str) -> bool:
        return name in self._publishers or len(self._publishers) < SESSION_PUBLISHERS_MAX

    def start_publisher(self, name: str, publisher: Publisher) -> None:
        """Instead of what was being told under this name."""
        self.stop_publisher(name)
        self._publishers[name] = task = _PublisherTask()
        self._background_tasks.spawn(self._run_publisher(name, publisher, task))

    def stop_publisher(self, name: str) -> None:
        if task := self._publishers.pop(name, None):
            task.stop()

    def stop_publishers(self) -> None:
        for name in list(self._publishers):
            self.stop_publisher(name)

    async def _run_publisher(self, name: str, publisher: Publisher, task: "_PublisherTask") -> None:
        await task.run(publisher)
        if self._publishers.get(name) is task:
            del self._publishers[name]


class _PublisherTask:
    """One piece of work, in the task that runs it; there is none yet when it is stopped at once."""

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
            self.stop()  # the work still begins, so that whoever waits for a word of it hears that it is called off
        try:
            await publisher()
        except Exception:  # the boundary between what is told here and everything else: a client never relies on it
            log.exception("session.not_told")


def get_session_notifications(
    sdk_context: ServerRequestContext[Any, Any], background: TaskSpawner
) -> SessionNotifications:
    """The session's, made when it is first asked for."""
    connection = _get_connection(sdk_context)
    notifications: SessionNotifications | None = connection.state.get(_STATE_KEY)
    if notifications is None:
        connection.state[_STATE_KEY] = notifications = SessionNotifications(background)
        connection.exit_stack.callback(notifications.stop_publishers)
    return notifications


def _get_connection(sdk_context: ServerRequestContext[Any, Any]) -> Connection:
    return sdk_context.session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - nothing else tells of a session's end
