"""When a handler that has failed runs again: after 1 s, 2 s, 4 s … 5 minutes, until its callback is given up after 4 days.

A callback that is older at its first try, because it waited behind another or for a start of the process, is tried for an hour.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Self

from ringback.backoff import Backoff

RETRY_SECONDS_MAX: Final = 300.0
"""The longest pause before a failed handler runs again."""
GIVE_UP_SECONDS: Final = 4 * 86_400.0
"""The age at which a callback is given up whose handler still fails: Ringback's own age limit for deliveries."""
TRIED_SECONDS_MIN: Final = 3600.0
"""How long a callback is tried in one process before it is given up, whatever its age."""
_BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=RETRY_SECONDS_MAX)


@dataclass(frozen=True, slots=True)
class NextTry:
    """A handler has not succeeded. `is_failure` is false if it was not ready: that does not prolong later pauses."""

    pause_seconds: float
    is_failure: bool

    @classmethod
    def after_failures(cls, failures: int) -> Self:
        """`failures`: in a row, at least one."""
        return cls(_BACKOFF.pause_seconds(failures), is_failure=True)


async def retry_until_ended(
    try_once: Callable[[int], Awaitable[NextTry | None]],
    *,
    sleep: Callable[[float], Awaitable[None]],
    failures: int = 0,
) -> None:
    """Repeat a try until it returns None. It gets the number of failures so far; after `failures` of them, it begins later."""
    if failures:
        await sleep(NextTry.after_failures(failures).pause_seconds)
    while (next_try := await try_once(failures)) is not None:
        failures += next_try.is_failure
        await sleep(next_try.pause_seconds)


def is_given_up(since: float, now: float, *, tried_since: float) -> bool:
    """Whether a handler that fails is not tried again. `since`: when its callback arrived, or failed for the first time.

    `tried_since`: when this process tried it first.
    """
    return now - since >= GIVE_UP_SECONDS and now - tried_since >= TRIED_SECONDS_MIN
