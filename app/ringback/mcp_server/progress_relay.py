"""Progress and log messages of the upstream, relayed while the client waits for its answer.

Progress goes out only to a client that sent a token, and only upwards (a MUST of the protocol). It comes live from the
upstream; of a call that runs in another process it comes from the store, a second late. Messages are sent to clients that asked
for them: with the request on 2026-07-28, by logging/setLevel before.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, cast, get_args

from mcp_types import LOG_LEVEL_META_KEY, LoggingLevel

from ringback.domain.call import Call
from ringback.domain.upstreams import UpstreamNotification
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.session_notifications import send_to_request
from ringback.mcp_server.task_serializer import progress_params

LOG_LEVEL_SESSIONS_MAX: Final = 10_000
"""Whose level is remembered; as many sessions as an endpoint has."""
_LEVELS: Final = frozenset(cast("tuple[str, ...]", get_args(LoggingLevel)))
_PROGRESS_METHOD: Final = "notifications/progress"


class SessionLogLevels:
    """What sessions of before 2026-07-28 asked to hear."""

    def __init__(self) -> None:
        self._levels: OrderedDict[str, str] = OrderedDict()

    def set_level(self, session_id: str, level: str) -> None:
        self._levels[session_id] = level
        self._levels.move_to_end(session_id)
        if len(self._levels) > LOG_LEVEL_SESSIONS_MAX:
            self._levels.popitem(last=False)

    def get_level(self, context: RequestContext) -> str | None:
        level = context.meta.get(LOG_LEVEL_META_KEY) if context.is_modern else self._levels.get(context.mcp_session_id)
        return level if level in _LEVELS else None


class ProgressRelay:
    """To one client that waits."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._progress_token = context.meta.get("progress_token")
        self._last_progress: float | None = None

    async def relay_notifications(self, notifications: AsyncIterator[UpstreamNotification]) -> None:
        """Until cancelled."""
        async for each in notifications:
            if each.method == _PROGRESS_METHOD:
                await self._send_progress(each.params)
            else:
                await send_to_request(self._context.sdk_context, each.method, each.params)

    async def relay_stored_progress(self, call: Call) -> None:
        if call.progress is not None:
            await self._send_progress(progress_params(call.progress))

    async def _send_progress(self, params: Mapping[str, Any]) -> None:
        progress = params["progress"]
        if self._progress_token is None or (self._last_progress is not None and progress <= self._last_progress):
            return
        self._last_progress = progress
        await send_to_request(
            self._context.sdk_context, _PROGRESS_METHOD, {**params, "progressToken": self._progress_token}
        )
