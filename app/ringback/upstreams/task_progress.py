"""Progress of tasks of 2025-11-25 after the response that created them.

The token of the request stays valid until the task ends (MCP 2025-11-25, Progress), but the SDK's dispatcher forgets it with
the response.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from mcp.shared.dispatcher import ProgressFnT, coerce_request_id
from mcp_types import RequestId

from ringback.protocol.errors import InvalidUpstreamResponse
from ringback.protocol.tasks import find_created_legacy_task_id

PROGRESS_METHOD: Final = "notifications/progress"


class TaskProgress:
    """The progress callbacks of the tasks that one session has created, by token.

    The references are weak: the driver that follows a task holds its callback, which disappears with the driver.
    """

    def __init__(self) -> None:
        self._callbacks = WeakValueDictionary[RequestId, ProgressFnT]()

    def keep_callback(self, token: RequestId, callback: ProgressFnT | None, result: Mapping[str, Any]) -> None:
        """Keep the callback of a request whose result has created a task."""
        if callback is not None and _has_created_task(result):
            self._callbacks[coerce_request_id(token)] = callback

    def find_report(self, params: Mapping[str, Any] | None) -> Callable[[], Awaitable[None]] | None:
        """What reports a progress notification to the driver of its task; None if its token belongs to no task."""
        match params:
            case {"progressToken": str() | int() as token, "progress": int() | float() as progress} if (
                not isinstance(token, bool) and (callback := self._callbacks.get(coerce_request_id(token))) is not None
            ):
                total, message = params.get("total"), params.get("message")
                return partial(
                    callback,
                    float(progress),
                    float(total) if isinstance(total, int | float) else None,
                    message if isinstance(message, str) else None,
                )
            case _:
                return None


def _has_created_task(result: Mapping[str, Any]) -> bool:
    try:
        return find_created_legacy_task_id(result) is not None
    except InvalidUpstreamResponse:
        return False  # the driver parses the result again, and reports this
