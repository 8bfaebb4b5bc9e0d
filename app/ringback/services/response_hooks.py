"""What is left to do once the answer to a request was written: with that, its client knows.

A door leaves it beside the request, in the state that ASGI gives each one; whoever writes the answer does it then, and not if
the client has gone. If it is never done, nothing is lost: a callback rings that nobody needed.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

ResponseWrittenHook = Callable[[], Awaitable[None]]

_STATE_KEY: Final = "ringback.once_written"


def on_response_written(state: MutableMapping[str, Any], action: ResponseWrittenHook) -> None:
    state[_STATE_KEY] = action


def response_written_hook(state: MutableMapping[str, Any]) -> ResponseWrittenHook | None:
    return state.get(_STATE_KEY)
