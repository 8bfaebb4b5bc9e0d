"""An origin that was away comes back to a backlog: its highest rate of callbacks, compared with the same origin in steady work.

An outage leaves deliveries that are all due at once. Steady work ends calls while their callbacks leave, as fast as both go.
The attempts that an origin may have in flight (`notifier.concurrency_limiter`) limit both rates, so a backlog should arrive at
most twice as fast.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from scripts.benchmarks.databases import Databases
from scripts.benchmarks.engine import drain, sustained
from scripts.benchmarks.measurement import Json, Measured, summary
from scripts.benchmarks.receivers import Receivers

DELIVERIES: Final = 2_000
QUICK_DELIVERIES: Final = 100
WINDOW_DELIVERIES: Final = 100
"""The highest rate is that of so many callbacks in a row: three times as many as one principal may have in flight."""

Run = Callable[[Sequence[str], Databases, int], Awaitable[Measured]]


async def backlog(found: Receivers, made: Databases, *, rounds: int, quick: bool) -> Json:
    """Callbacks a second at one origin, and the ratio of the backlog's highest rate to the steady rate of the same round."""
    deliveries = QUICK_DELIVERIES if quick else DELIVERIES
    steady: list[float] = []
    highest: list[float] = []
    for _ in range(rounds):
        arrivals = await _arrivals(found, made, sustained, deliveries)
        steady.append((len(arrivals) - 1) / (arrivals[-1] - arrivals[0]))
        highest.append(_highest_rate(await _arrivals(found, made, drain, deliveries)))
    return {
        "deliveries": deliveries,
        "steady_per_second": summary(steady, 0),
        "highest_after_an_outage_per_second": summary(highest, 0),
        "ratio": summary([after / before for before, after in zip(steady, highest, strict=True)], 2),
    }


async def _arrivals(found: Receivers, made: Databases, run: Run, deliveries: int) -> Sequence[float]:
    """The times at which the callbacks of a run arrive at one origin, in order."""
    await found.arrivals()
    await run(found.urls("/timed")[:1], made, deliveries)
    return sorted((await found.arrivals()).values())


def _highest_rate(arrivals: Sequence[float]) -> float:
    """Of any `WINDOW_DELIVERIES` callbacks in a row."""
    in_row = min(WINDOW_DELIVERIES, len(arrivals)) - 1
    return max(in_row / (last - first) for first, last in zip(arrivals, arrivals[in_row:], strict=False))
