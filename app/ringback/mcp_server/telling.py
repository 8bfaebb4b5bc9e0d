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

from ringback.mcp_server.gateway import Background

log = logging.getLogger(__name__)

Tell = Callable[[str, Mapping[str, Any]], Awaitable[None]]
"""Sends a notification: its method and its params."""
Work = Callable[[], Coroutine[Any, Any, None]]
TOLD_IN_SESSION_MAX: Final = 256
"""Calls and resources that one session hears of at once. Each takes 6 KB (measured); a client that follows more has a bug."""

_KEY: Final = "ringback.told"


class RawNotification(types.Notification[dict[str, Any], str]):
    """Params go out as they are."""


async def tell_session(context: ServerRequestContext[Any, Any], method: str, params: Mapping[str, Any]) -> None:
    """On the session's own stream; lost when the client has none open, which is for the client to know."""
    await context.session.send_notification(cast("Any", RawNotification(method=method, params=dict(params))))


async def tell_request(context: ServerRequestContext[Any, Any], method: str, params: Mapping[str, Any]) -> None:
    """On the stream of the request's answer; waits for a client that reads slowly."""
    notification = cast("Any", RawNotification(method=method, params=dict(params)))
    await context.session.send_notification(notification, related_request_id=context.request_id)


class ToldInSession:
    """What is being told in one session: each piece of work under its name, until it is over, stopped, or the session ends."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._told: dict[str, _Told] = {}

    def has_room_for(self, name: str) -> bool:
        return name in self._told or len(self._told) < TOLD_IN_SESSION_MAX

    def start(self, name: str, work: Work) -> None:
        """Instead of what was being told under this name."""
        self.stop(name)
        self._told[name] = told = _Told()
        self._background.start(self._run(name, work, told))

    def stop(self, name: str) -> None:
        if told := self._told.pop(name, None):
            told.stop()

    def stop_all(self) -> None:
        for name in list(self._told):
            self.stop(name)

    async def _run(self, name: str, work: Work, told: "_Told") -> None:
        await told.run(work)
        if self._told.get(name) is told:
            del self._told[name]


class _Told:
    """One piece of work, in the task that runs it; there is none yet when it is stopped at once."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._stopped = False

    def stop(self) -> None:
        self._stopped = True
        if self._task is not None:
            self._task.cancel()

    async def run(self, work: Work) -> None:
        self._task = asyncio.current_task()
        if self._stopped:
            self.stop()  # the work still begins, so that whoever waits for a word of it hears that it is called off
        try:
            await work()
        except Exception:  # the boundary between what is told here and everything else: a client never relies on it
            log.exception("session.not_told")


def told_in_session(context: ServerRequestContext[Any, Any], background: Background) -> ToldInSession:
    """The session's, made when it is first asked for."""
    connection = _connection_of(context)
    told: ToldInSession | None = connection.state.get(_KEY)
    if told is None:
        connection.state[_KEY] = told = ToldInSession(background)
        connection.exit_stack.callback(told.stop_all)
    return told


def _connection_of(context: ServerRequestContext[Any, Any]) -> Connection:
    return context.session._connection  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - nothing else tells of a session's end
