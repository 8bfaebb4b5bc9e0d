"""The limit of every wait in tests, which ends a hang and does not measure speed, and the pauses of waits that poll."""

from collections.abc import Iterator
from typing import Final

WAIT_SECONDS: Final = 120.0
"""Far longer than any step takes beside four busy processes on two cores; only a broken test waits that long."""


def growing_pauses() -> Iterator[float]:
    """Seconds between two looks at something that sends no notification: 2 ms, and each time half as long again, up to 50 ms.

    A look at a row of the store takes half a millisecond of CPU. Every 2 ms, it takes a quarter of a core from the processes
    that the test waits for.
    """
    seconds = 0.002
    while True:
        yield seconds
        seconds = min(1.5 * seconds, 0.05)
