"""The limit of every wait in tests, which ends a hang and does not measure speed, and the pauses of waits that poll."""

from collections.abc import Awaitable, Callable, Iterator
from typing import Final, TypeVar

T = TypeVar("T")

WAIT_SECONDS: Final = 120.0
"""Far longer than any step takes beside four busy processes on two cores; only a broken test waits that long."""

GROWING_DEADLINES: Final = (0.1, 1.0, 10.0)
"""Seconds of attempts that are to end at their deadline."""


async def let_deadline_pass(attempt: Callable[[float], Awaitable[T]], *, until: Callable[[T], bool]) -> T:
    """The result of an attempt whose deadline passes in the stage that `until` recognises by the result, or the last result.

    A busy machine may use up a short deadline in an earlier stage, such as connecting. The next attempt has ten times as long.
    """
    for deadline_seconds in GROWING_DEADLINES[:-1]:
        if until(result := await attempt(deadline_seconds)):
            return result
    return await attempt(GROWING_DEADLINES[-1])


def growing_pauses() -> Iterator[float]:
    """Seconds between two looks at something that sends no notification: 2 ms, and each time half as long again, up to 50 ms.

    A look at a row of the store takes half a millisecond of CPU. Every 2 ms, it takes a quarter of a core from the processes
    that the test waits for.
    """
    seconds = 0.002
    while True:
        yield seconds
        seconds = min(1.5 * seconds, 0.05)
