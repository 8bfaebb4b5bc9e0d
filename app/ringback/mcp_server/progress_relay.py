"""Relays progress and log messages of the upstream while the client waits for a response.

Progress goes only to a client that sent a progress token, and only increases (a MUST of the protocol), also on a stream that
the client resumes. It comes live from the upstream, or up to a second late from the store if another process runs the call. Log
messages go to clients that set a level: in the modern request, or with logging/setLevel in a legacy session. They are not
stored, so only a client that waits at the node that runs the call gets them: the node that started it, unless the call was
queued.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final, cast, get_args

from mcp_types import LOG_LEVEL_META_KEY, LoggingLevel

from ringback.domain.call import Call
from ringback.domain.upstreams import UpstreamNotification
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.session_notifications import get_connection, send_to_request
from ringback.mcp_server.task_serializer import progress_params

_LOG_LEVEL_KEY: Final = "ringback.log_level"
"""The key of a legacy session's level in the state of its connection, which ends with the session."""
_LEVELS: Final = frozenset(cast("tuple[str, ...]", get_args(LoggingLevel)))
_PROGRESS_METHOD: Final = "notifications/progress"


def set_log_level(context: RequestContext, level: str) -> None:
    """Set the level of a legacy session."""
    get_connection(context).state[_LOG_LEVEL_KEY] = level


def get_log_level(context: RequestContext) -> str | None:
    """The level of the modern request or of the legacy session; None if its client wants no log messages."""
    source = context.meta.get(LOG_LEVEL_META_KEY) if context.is_modern else _get_session_level(context)
    return source if isinstance(source, str) and source in _LEVELS else None


def _get_session_level(context: RequestContext) -> Any:
    return get_connection(context).state.get(_LOG_LEVEL_KEY)


def _do_nothing() -> None:
    pass


class ProgressRelay:
    """Relays to one waiting client."""

    def __init__(self, context: RequestContext, *, on_progress_sent: Callable[[], None] = _do_nothing) -> None:
        self._context = context
        self._on_progress_sent = on_progress_sent
        self._progress_token = context.meta.get("progress_token")
        request = context.stream_request
        self._last_progress = None if request is None else request.progress_sent

    @property
    def has_progress_token(self) -> bool:
        return self._progress_token is not None

    async def relay_notifications(self, notifications: AsyncIterator[UpstreamNotification]) -> None:
        """Relay until cancelled."""
        async for each in notifications:
            if each.method == _PROGRESS_METHOD:
                await self._send_progress(each.params)
            else:
                await send_to_request(self._context, each.method, each.params)

    async def relay_stored_progress(self, call: Call) -> None:
        if call.progress is not None:
            await self._send_progress(progress_params(call.progress))

    async def _send_progress(self, params: Mapping[str, Any]) -> None:
        progress = params["progress"]
        if self._progress_token is None or (self._last_progress is not None and progress <= self._last_progress):
            return
        self._last_progress = progress
        await send_to_request(self._context, _PROGRESS_METHOD, {**params, "progressToken": self._progress_token})
        self._on_progress_sent()
