"""What bad receivers do to the good ones beside them: latency of the good ones' callbacks, against the same when all is quiet.

Each scenario has a backlog of the bad ones' deliveries that is due when the dispatcher starts; the good calls follow at
the pace of the latency runs. Every scenario has an engine of its own, and a quiet one goes before each.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from socket import create_server
from threading import Event
from typing import Final

from ringback.notifier.addresses import Address
from ringback.notifier.target_guard import RESOLVE_THREADS, Resolver
from scripts.benchmarks.engine import engine
from scripts.benchmarks.latency import paced
from scripts.benchmarks.measure import Json, percentile, say
from scripts.benchmarks.receivers import Receivers, hung_receivers

SETTLE_SECONDS: Final = 0.5
"""After the dispatcher's start, so that the bad ones hold all that they can get."""
LOOK_UP_SECONDS: Final = 30.0
"""How long getaddrinfo hangs on dead name servers (resolv.conf: 3 servers, 5 s, 2 attempts)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    hung_receivers: int = 1000
    dead_pending: int = 10_000
    hung_names: int = 500


QUICK: Final = Size(hung_receivers=50, dead_pending=200, hung_names=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bad:
    urls: Sequence[str] = ()
    pending: int = 0
    resolver: Resolver | None = None


class HangingResolver:
    """Name servers that never answer, as the machine's resolver shows it: a thread that waits for each look-up."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max_workers=RESOLVE_THREADS, thread_name_prefix="hanging")
        self._over = Event()

    async def __call__(self, host: str, /) -> Sequence[Address]:
        del host
        await asyncio.get_running_loop().run_in_executor(self._threads, self._over.wait, LOOK_UP_SECONDS)
        return ()

    def close(self) -> None:
        self._over.set()
        self._threads.shutdown(cancel_futures=True)


@asynccontextmanager
async def a_thousand_hung(size: Size) -> AsyncGenerator[Bad]:
    """Receivers that accept and never answer, with one callback each."""
    async with hung_receivers(size.hung_receivers) as origins:
        yield Bad(urls=[f"{origin}/hung" for origin in origins], pending=size.hung_receivers)


@asynccontextmanager
async def one_dead(size: Size) -> AsyncGenerator[Bad]:
    """One origin that refuses every connection, with a long backlog."""
    with create_server(("127.0.0.1", 0)) as closing:
        port = closing.getsockname()[1]
    yield Bad(urls=[f"http://127.0.0.1:{port}/dead"], pending=size.dead_pending)


@asynccontextmanager
async def hung_names(size: Size) -> AsyncGenerator[Bad]:
    """Hosts whose name servers do not answer, with one callback each."""
    resolver = HangingResolver()
    try:
        yield Bad(
            urls=[f"https://hung-{number}.example/hook" for number in range(size.hung_names)],
            pending=size.hung_names,
            resolver=resolver,
        )
    finally:
        resolver.close()


SCENARIOS: Final[dict[str, Callable[[Size], AbstractAsyncContextManager[Bad]]]] = {
    "hung_receivers": a_thousand_hung,
    "one_dead_origin": one_dead,
    "hung_names": hung_names,
}


async def isolation(receivers: Receivers, size: Size, *, seconds: float) -> Json:
    """Each scenario's p99 of the good callbacks, in ms and as a ratio to the quiet run just before it."""
    told: Json = {}
    for name, scenario in SCENARIOS.items():
        quiet = await _good_latency(receivers, Bad(), seconds=seconds)
        async with scenario(size) as bad:
            beside = await _good_latency(receivers, bad, seconds=seconds)
        quiet_p99, p99 = percentile(quiet, 0.99), percentile(beside, 0.99)
        told[name] = {
            "pending": bad.pending,
            "p99_ratio": round(p99 / quiet_p99, 2),
            "p99_ms": round(p99 * 1000, 2),
            "quiet_p99_ms": round(quiet_p99 * 1000, 2),
        }
        say(f"isolation, {name} ({bad.pending} pending): p99 {p99 * 1000:.1f} ms, quiet {quiet_p99 * 1000:.1f} ms")
    return told


async def _good_latency(receivers: Receivers, bad: Bad, *, seconds: float) -> list[float]:
    urls = receivers.urls("/timed")
    async with engine([*urls, *bad.urls], resolver=bad.resolver) as made:
        await made.end_all(await made.running_calls(bad.urls, bad.pending))
        async with made.dispatching():
            await asyncio.sleep(SETTLE_SECONDS)
            return await paced(made, receivers, urls, seconds=seconds)
