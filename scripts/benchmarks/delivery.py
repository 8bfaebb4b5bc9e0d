"""`scripts/bench delivery`: throughput, latency and isolation, in one run."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from scripts.benchmarks import throughput
from scripts.benchmarks.databases import Databases, PostgresDatabases, StoreKind, databases
from scripts.benchmarks.isolation import QUICK, Size, isolation
from scripts.benchmarks.latency import latency
from scripts.benchmarks.measurement import Json, machine_facts, print_progress
from scripts.benchmarks.receivers import ORIGINS, Receivers, measure_ceiling, receivers
from scripts.benchmarks.signed_post import IN_FLIGHT, sample_body
from scripts.benchmarks.task_queue import task_queue


async def delivery(kind: StoreKind, *, rounds: int, seconds: float, quick: bool) -> Json:
    async with receivers() as found, databases(kind) as made:
        body = sample_body()
        reached = await measure_ceiling(found, body=body, seconds=seconds)
        print_progress(f"the receivers' maximum: {reached:,.0f}/s")
        measured = await _throughput(found, made, body, rounds=rounds, seconds=seconds)
        timed = await _latency(found, made, rounds=rounds, seconds=seconds)
        isolated = await isolation(found, made, QUICK if quick else Size(), rounds=rounds, seconds=seconds)
    return {
        "machine": machine_facts(),
        "store": str(kind),
        "rounds": rounds,
        "origins": ORIGINS,
        "in_flight_of_the_bare_loop": IN_FLIGHT,
        "body_bytes": len(body),
        "receivers_ceiling_per_second": round(reached),
        **measured,
        "latency": timed,
        "isolation": isolated,
    }


async def _throughput(found: Receivers, made: Databases, body: bytes, *, rounds: int, seconds: float) -> Json:
    async with _on_postgres(made) as postgres, task_queue(postgres) as queue:
        runs = throughput.variants(found, made, queue, body)
        return throughput.report(await throughput.interleaved(runs, rounds=rounds, seconds=seconds))


@asynccontextmanager
async def _on_postgres(made: Databases) -> AsyncGenerator[Databases]:
    """The same PostgreSQL as the engine's, or one of its own beside SQLite."""
    if isinstance(made, PostgresDatabases):
        yield made
        return
    async with databases(StoreKind.POSTGRES) as postgres:
        yield postgres


async def _latency(found: Receivers, made: Databases, *, rounds: int, seconds: float) -> Json:
    results = await latency(found, made, rounds=rounds, seconds=seconds)
    for name, measured in results.items():
        print_progress(f"latency, {name}: p50 {measured['p50_ms']['median']} ms, p99 {measured['p99_ms']['median']} ms")
    return results
