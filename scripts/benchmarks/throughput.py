"""Deliveries per second: every variant runs in every round."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from scripts.benchmarks import engine
from scripts.benchmarks.databases import Databases
from scripts.benchmarks.measurement import Json, Measured, paired_ratios, print_progress, summary
from scripts.benchmarks.receivers import Receivers
from scripts.benchmarks.signed_post import bare_loop
from scripts.benchmarks.task_queue import TaskQueue

WARM_UP: Final = 300
"""Warm-up deliveries of each variant before the first round, which also determine the size of a round."""
BARE, SUSTAINED, DRAIN, PROCRASTINATE = "bare_loop", "engine_sustained", "engine_drain", "procrastinate"

Run = Callable[[int], Awaitable[Measured]]
Rounds = Sequence[Mapping[str, Measured]]


def variants(receivers: Receivers, databases: Databases, queue: TaskQueue, body: bytes) -> dict[str, Run]:
    urls = receivers.urls("/fast")
    return {
        BARE: lambda deliveries: bare_loop(urls, body, deliveries),
        SUSTAINED: lambda deliveries: engine.sustained(urls, databases, deliveries),
        DRAIN: lambda deliveries: engine.drain(urls, databases, deliveries),
        PROCRASTINATE: lambda deliveries: queue.drain(urls, body, deliveries),
    }


async def interleaved(runs: Mapping[str, Run], *, rounds: int, seconds: float) -> Rounds:
    """Run the rounds. Each runs every variant for about `seconds`; every other round in reverse order."""
    sizes = {name: max(WARM_UP, round((await run(WARM_UP)).rate * seconds)) for name, run in runs.items()}
    done: list[Mapping[str, Measured]] = []
    for number in range(rounds):
        order = list(runs) if number % 2 == 0 else list(runs)[::-1]
        done.append({name: await runs[name](sizes[name]) for name in order})
        rates = "  ".join(f"{name} {measured.rate:,.0f}/s" for name, measured in sorted(done[-1].items()))
        print_progress(f"round {number + 1} of {rounds}: {rates}")
    return done


def report(rounds: Rounds) -> Json:
    """The ratios, then rates and CPU."""
    return {
        "engine_sustained_ratio": summary(paired_ratios(rounds, SUSTAINED, BARE)),
        "engine_drain_ratio": summary(paired_ratios(rounds, DRAIN, BARE)),
        "vs_procrastinate_ratio": summary(paired_ratios(rounds, DRAIN, PROCRASTINATE)),
        "per_second": {name: summary([done[name].rate for done in rounds], 0) for name in rounds[0]},
        "cpu_us_per_delivery": {name: summary([done[name].cpu_us for done in rounds], 1) for name in rounds[0]},
    }
