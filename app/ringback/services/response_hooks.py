"""An action that runs after the response to a request has been written, so that its client knows the result.

A REST or MCP endpoint sets the action in the ASGI state of the request. The middleware that writes the response runs the
action, unless the client has disconnected. If the action never runs, nothing is lost: the client gets a callback that it did
not need.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

ResponseWrittenHook = Callable[[], Awaitable[None]]

_STATE_KEY: Final = "ringback.once_written"


def on_response_written(state: MutableMapping[str, Any], action: ResponseWrittenHook) -> None:
    state[_STATE_KEY] = action


def response_written_hook(state: MutableMapping[str, Any]) -> ResponseWrittenHook | None:
    return state.get(_STATE_KEY)


def drop_response_hook(state: MutableMapping[str, Any]) -> None:
    """Forget the action: another response than that of the endpoint is sent."""
    state.pop(_STATE_KEY, None)
