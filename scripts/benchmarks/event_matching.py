"""Ends of calls beside many MCP subscriptions: each end matches one of them, and the others cost nothing.

The subscriptions of one principal name a session each. CPU comes from rounds in which few and many take turns; statements and
work (`store_work`) are counted in runs of their own, because counting costs CPU.
"""

import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Final

from ringback.domain.ids import WebhookId
from ringback.domain.ports import Transaction
from ringback.domain.webhook import Webhook, WebhookOrigin
from scripts.benchmarks.databases import Databases
from scripts.benchmarks.engine import BenchmarkEngine, open_engine
from scripts.benchmarks.measurement import Json, print_progress, summary
from scripts.benchmarks.signed_post import new_webhook
from scripts.benchmarks.store_work import StoreWork, analyze, counting_work

CALLBACK_URL: Final = "https://receiver.example/events"
COUNTED_ENDS: Final = 50
INSERT_BATCH_SIZE: Final = 500
FEW: Final = "few"
MANY: Final = "many"


async def measure_matching(made: Databases, sizes: Mapping[str, int], *, rounds: int, calls: int) -> Json:
    """`sizes` are the numbers of subscriptions, by `FEW` and `MANY`; `calls` end beside each in all rounds together."""
    in_round = max(1, calls // rounds)
    async with AsyncExitStack() as stack:
        urls = {name: await stack.enter_async_context(made.empty_database()) for name in sizes}
        for name, url in urls.items():
            await _insert_subscriptions(url, sizes[name])
        cpu = await _measure_cpu(urls, sizes, rounds=rounds, in_round=in_round)
        work = {name: await _count_work(url, sizes[name]) for name, url in urls.items()}
    return {
        "subscriptions": dict(sizes),
        "calls": in_round * rounds,
        "growth": {
            "cpu": summary([many / few for few, many in zip(cpu[FEW], cpu[MANY], strict=True)], 2)["median"],
            "statements": round(work[MANY].statements / work[FEW].statements, 2),
            "work": round(work[MANY].work / work[FEW].work, 2),
        },
        "cpu_us_per_end": {name: summary([each * 1e6 for each in values], 0) for name, values in cpu.items()},
        "statements_per_end": {name: each.statements / COUNTED_ENDS for name, each in work.items()},
        "work_per_end": {name: round(each.work / COUNTED_ENDS) for name, each in work.items()},
    }


async def _measure_cpu(
    urls: Mapping[str, str], sizes: Mapping[str, int], *, rounds: int, in_round: int
) -> dict[str, list[float]]:
    """The CPU seconds of one end, by round."""
    taken: dict[str, list[float]] = {name: [] for name in urls}
    async with AsyncExitStack() as stack:
        engines = {name: await stack.enter_async_context(open_engine(url)) for name, url in urls.items()}
        for name, engine in engines.items():
            await _end_calls(engine, sizes[name], in_round)  # plans statements, and fills caches
        for number in range(rounds):
            for name in list(engines) if number % 2 == 0 else list(engines)[::-1]:
                taken[name].append(await _end_calls(engines[name], sizes[name], in_round))
            print_progress(f"matching, round {number + 1} of {rounds}: {taken[MANY][-1] / taken[FEW][-1]:.2f}")
    return taken


async def _count_work(url: str, subscriptions: int) -> StoreWork:
    """The work of `COUNTED_ENDS` ends. A second run with as many more cancels what opening a store costs."""
    runs: list[StoreWork] = []
    for ends in (COUNTED_ENDS, 2 * COUNTED_ENDS):
        async with counting_work(url) as work, open_engine(url) as engine:
            await _end_calls(engine, subscriptions, ends)
        runs.append(work)
    return StoreWork(runs[1].statements - runs[0].statements, runs[1].work - runs[0].work)


async def _end_calls(engine: BenchmarkEngine, subscriptions: int, count: int) -> float:
    """The CPU seconds of each of these ends, one after the other; the sessions take turns."""
    step = max(1, subscriptions // count)
    calls = await engine.running_calls([_session(number) for number in range(0, subscriptions, step)], count)
    began = time.process_time()
    for call in calls:
        await engine.finish_call(call)
    return (time.process_time() - began) / count


async def _insert_subscriptions(url: str, count: int) -> None:
    async with open_engine(url) as engine:
        webhooks = [_make_subscription(engine, number) for number in range(count)]
        for start in range(0, count, INSERT_BATCH_SIZE):
            await engine.store.write(lambda tx, some=webhooks[start : start + INSERT_BATCH_SIZE]: _insert(tx, some))
    await analyze(url)
    print_progress(f"matching: {count:,} subscriptions are stored")


async def _insert(tx: Transaction, webhooks: list[Webhook]) -> None:
    for webhook in webhooks:
        await tx.webhooks.insert(webhook)


def _make_subscription(engine: BenchmarkEngine, number: int) -> Webhook:
    """The row that events/subscribe makes: filters are strict, the correlation id too."""
    webhook = new_webhook(engine.ids, engine.clock, url=CALLBACK_URL, session=_session(number))
    return replace(webhook, id=WebhookId(f"sub_{number:032x}"), origin=WebhookOrigin.MCP, match_correlation=True)


def _session(number: int) -> str:
    return f"session-{number}"
