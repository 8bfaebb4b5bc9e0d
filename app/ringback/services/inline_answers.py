"""What is left to do once the answer to a request was written: with that, its client knows.

A door leaves it beside the request, in the state that ASGI gives each one; whoever writes the answer does it then, and not if
the client has gone. If it is never done, nothing is lost: a callback rings that nobody needed.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

Written = Callable[[], Awaitable[None]]

_KEY: Final = "ringback.once_written"


def once_written(state: MutableMapping[str, Any], action: Written) -> None:
    state[_KEY] = action


def to_do(state: MutableMapping[str, Any]) -> Written | None:
    return state.get(_KEY)
