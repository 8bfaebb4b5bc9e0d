"""An origin that was away comes back to a backlog: its callbacks in any second, compared with its steady rate before.

    steady   calls end at a fixed rate, and their callbacks arrive
    outage   the receiver's process is gone, so connections are refused; the breaker opens, and calls go on ending
    return   the receiver is back at its port; calls go on ending until the backlog is gone

The outage lasts until the first pause of the breaker is nearly over, so each round takes three quarters of a minute.
"""

import asyncio
import time
from bisect import bisect_left
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from ringback.domain.ports import Transaction
from scripts.benchmarks.databases import Databases
from scripts.benchmarks.engine import INSERT_BATCH_SIZE, BenchmarkEngine, engine
from scripts.benchmarks.measurement import Json, print_progress, summary
from scripts.benchmarks.receivers import Receivers, restarted_receiver
from scripts.benchmarks.signed_post import PRINCIPAL

ROUNDS_MAX: Final = 3
CALLS_PER_SECOND: Final = 200
"""A third of what one origin gets from one process at most: twice as many must be possible."""
STEADY_SECONDS: Final = 12.0
QUICK_STEADY_SECONDS: Final = 3.0
CALLBACKS_MIN: Final = 2
"""Before the steady phase begins: on a busy machine the first ones may take longer than a short phase."""
AWAY_SECONDS: Final = 10.0
"""Once the breaker is open. Its first pause is 12 seconds at least."""
PHASE_SECONDS_MAX: Final = 120.0
POLL_SECONDS: Final = 0.05


@dataclass(slots=True)
class _Round:
    steady: list[float] = field(default_factory=list[float])
    """Arrival times at the receiver, in order."""
    after: list[float] = field(default_factory=list[float])
    returned_at: float = 0.0
    backlog: int = 0
    drained_at: float = 0.0

    @property
    def steady_per_second(self) -> float:
        return (len(self.steady) - 1) / (self.steady[-1] - self.steady[0])

    @property
    def highest_per_second(self) -> int:
        """Callbacks in any one second after the return."""
        return max(bisect_left(self.after, began + 1) - number for number, began in enumerate(self.after))


async def backlog(made: Databases, *, rounds: int, quick: bool) -> Json:
    measured = [
        await _run(made, QUICK_STEADY_SECONDS if quick else STEADY_SECONDS)
        for _ in range(1 if quick else min(rounds, ROUNDS_MAX))
    ]
    ratios = summary([each.highest_per_second / each.steady_per_second for each in measured], 2)
    print_progress(f"backlog after an outage: {ratios['median']} times the steady rate in any second")
    return {
        "steady_per_second": summary([each.steady_per_second for each in measured], 0),
        "highest_after_an_outage_per_second": summary([each.highest_per_second for each in measured], 0),
        "ratio": ratios,
        "backlog": summary([each.backlog for each in measured], 0),
        "drain_seconds": summary([each.drained_at - each.after[0] for each in measured], 1),
    }


async def _run(made: Databases, steady_seconds: float) -> _Round:
    found = _Round()
    async with AsyncExitStack() as stack:
        receiver = await stack.enter_async_context(restarted_receiver())
        url = f"{receiver.origin}/timed"
        placed = await stack.enter_async_context(engine([url], made))
        stop = await stack.enter_async_context(placed.running_dispatcher())
        async with _ending_calls(placed, url):
            await _wait_for_callbacks(receiver.receivers)
            await asyncio.sleep(steady_seconds)
            found.steady = await _arrivals(receiver.receivers)
            await receiver.stop()
            await _wait_for_open_breaker(placed)
            await asyncio.sleep(AWAY_SECONDS)
            await receiver.start()
            found.returned_at, found.backlog = time.monotonic(), await _count_due(placed)
            await _wait_until_drained(placed)
            found.drained_at = time.monotonic()
            found.after = await _arrivals(receiver.receivers)
        stop.set()
    return found


@asynccontextmanager
async def _ending_calls(placed: BenchmarkEngine, url: str) -> AsyncGenerator[None]:
    """Calls end at the rate, each in a transaction of its own unless several are late."""

    async def end_calls() -> None:
        began, ended = time.monotonic(), 0
        async with asyncio.TaskGroup() as group:
            while True:
                calls = await placed.running_calls([url], INSERT_BATCH_SIZE)
                for call in calls:
                    await asyncio.sleep(max(0.0, began + ended / CALLS_PER_SECOND - time.monotonic()))
                    group.create_task(placed.finish_call(call))
                    ended += 1

    task = asyncio.create_task(end_calls())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _arrivals(found: Receivers) -> list[float]:
    return sorted((await found.arrivals()).values())


async def _wait_for_callbacks(receivers: Receivers) -> None:
    async with asyncio.timeout(PHASE_SECONDS_MAX):
        while len(await _arrivals(receivers)) < CALLBACKS_MIN:  # noqa: ASYNC110 - another process receives them
            await asyncio.sleep(POLL_SECONDS)


async def _wait_for_open_breaker(placed: BenchmarkEngine) -> None:
    """The webhook's: one webhook alone opens it before the origin's."""

    async def is_open(tx: Transaction) -> bool:
        (webhook,) = await tx.webhooks.list_page(PRINCIPAL, None, position=None, limit=1)
        return webhook.breaker.openings > 0

    await _poll_until(placed, is_open)


async def _count_due(placed: BenchmarkEngine) -> int:
    async def count(tx: Transaction) -> int:
        (webhook_id,) = await tx.delivery_queue.list_due_webhooks(now=tx.now(), excluding=(), limit=1)
        return (await tx.webhook_deliveries.count_open(webhook_id, now=tx.now(), limit=1_000_000)).due

    return await placed.store.read(count)


async def _wait_until_drained(placed: BenchmarkEngine) -> None:
    """Until the oldest due delivery is younger than a second: a limit may hold new ones back for moments."""

    async def is_drained(tx: Transaction) -> bool:
        due = await tx.delivery_queue.next_due_at()
        return due is None or (tx.now() - due).total_seconds() < 1.0

    await _poll_until(placed, is_drained)


async def _poll_until(placed: BenchmarkEngine, reached: Callable[[Transaction], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PHASE_SECONDS_MAX):
        while not await placed.store.read(reached):  # noqa: ASYNC110 - the store reports no such change
            await asyncio.sleep(POLL_SECONDS)
