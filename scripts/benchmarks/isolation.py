"""The effect of failing receivers on others: the latency of good receivers' callbacks, compared with a run without failures.

Each scenario has a backlog of the failing receivers' deliveries that is due when the dispatcher starts; calls for the good
receivers follow at the rate of the latency runs. Every scenario has its own engine, and a run without failures precedes it. The
failing receivers belong to another principal. The name server of the run resolves the good receivers' names and no others.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from socket import create_server
from typing import Final

from ringback.domain.principal import Principal
from ringback.notifier.http.resolver import CAresResolver
from scripts.benchmarks.databases import Databases
from scripts.benchmarks.engine import engine
from scripts.benchmarks.latency import measure_at_rate
from scripts.benchmarks.measurement import Json, percentile, print_progress, summary
from scripts.benchmarks.receivers import Receivers, hung_receivers
from tests.support.name_servers import HANG_BEHAVIOUR, Records, name_server

ROUNDS_MAX: Final = 3
"""A starved good receiver waits for the whole timeout of a round; three rounds show it as well as seven."""
SETTLE_SECONDS: Final = 0.5
"""After the dispatcher's start, so that the failing receivers hold all the permits that they can get."""
OTHER_PRINCIPAL: Final = Principal("stranger")
GOOD_TTL_SECONDS: Final = 1
"""Short, so that good names are resolved repeatedly beside hanging ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    hung_receivers: int = 1000
    dead_pending: int = 10_000
    hung_names: int = 500


QUICK: Final = Size(hung_receivers=50, dead_pending=200, hung_names=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadReceivers:
    urls: Sequence[str] = ()
    pending: int = 0


@asynccontextmanager
async def make_silent_receivers(size: Size) -> AsyncGenerator[BadReceivers]:
    """Receivers that accept and never respond, with one callback each."""
    async with hung_receivers(size.hung_receivers) as origins:
        yield BadReceivers(urls=[f"{origin}/hung" for origin in origins], pending=size.hung_receivers)


@asynccontextmanager
async def make_dead_origin(size: Size) -> AsyncGenerator[BadReceivers]:
    """One origin that refuses every connection, with a long backlog."""
    with create_server(("127.0.0.1", 0)) as closing:
        port = closing.getsockname()[1]
    yield BadReceivers(urls=[f"http://127.0.0.1:{port}/dead"], pending=size.dead_pending)


@asynccontextmanager
async def make_hung_names(size: Size) -> AsyncGenerator[BadReceivers]:
    """Hosts whose name servers do not respond, with one callback each."""
    yield BadReceivers(
        urls=[f"https://hung-{number}.test/hook" for number in range(size.hung_names)], pending=size.hung_names
    )


SCENARIOS: Final[dict[str, Callable[[Size], AbstractAsyncContextManager[BadReceivers]]]] = {
    "hung_receivers": make_silent_receivers,
    "one_dead_origin": make_dead_origin,
    "hung_names": make_hung_names,
}


async def isolation(receivers: Receivers, databases: Databases, size: Size, *, rounds: int, seconds: float) -> Json:
    """Each scenario's p99 of the good receivers' callbacks, in ms and as a ratio to the run without failures before it."""
    results: Json = {}
    for name, scenario in SCENARIOS.items():
        pairs = [
            await _pair(receivers, databases, scenario(size), seconds=seconds) for _ in range(min(rounds, ROUNDS_MAX))
        ]
        results[name] = {
            "p99_ratio": summary([beside / quiet for quiet, beside in pairs], 2),
            "p99_ms": summary([beside * 1000 for _, beside in pairs], 2),
            "quiet_p99_ms": summary([quiet * 1000 for quiet, _ in pairs], 2),
        }
        beside, quiet = results[name]["p99_ms"]["median"], results[name]["quiet_p99_ms"]["median"]
        print_progress(f"isolation, {name}: p99 {beside} ms, quiet {quiet} ms")
    return {"size": asdict(size), **results}


async def _pair(
    receivers: Receivers, databases: Databases, scenario: AbstractAsyncContextManager[BadReceivers], *, seconds: float
) -> tuple[float, float]:
    """The good receivers' p99 in seconds: without and with failing receivers."""
    quiet = await _good_latency(receivers, databases, BadReceivers(), seconds=seconds)
    async with scenario as bad:
        beside = await _good_latency(receivers, databases, bad, seconds=seconds)
    return percentile(quiet, 0.99), percentile(beside, 0.99)


async def _good_latency(
    receivers: Receivers, databases: Databases, bad: BadReceivers, *, seconds: float
) -> list[float]:
    urls = receivers.urls("/timed")
    names = {origin: f"receiver-{number}.test" for number, origin in enumerate(receivers.origins)}
    records = {name: Records("127.0.0.1", ttl_seconds=GOOD_TTL_SECONDS) for name in names.values()}
    async with (
        name_server(records, others=HANG_BEHAVIOUR) as server,
        engine(urls, databases, resolver=CAresResolver([server.address]), names=names) as made,
    ):
        await made.insert_webhooks(bad.urls, OTHER_PRINCIPAL)
        await made.finish_calls(await made.running_calls(bad.urls, bad.pending, OTHER_PRINCIPAL))
        async with made.running_dispatcher():
            await asyncio.sleep(SETTLE_SECONDS)
            return [each.after_commit for each in await measure_at_rate(made, receivers, urls, seconds=seconds)]
