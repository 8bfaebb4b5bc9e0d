"""`scripts/bench ui`: what the dashboard costs the delivery of callbacks, and how long its pages take beside many calls."""

from scripts.benchmarks.databases import StoreKind, databases
from scripts.benchmarks.live_viewers import live_viewers
from scripts.benchmarks.measurement import Json, machine_facts
from scripts.benchmarks.page_times import page_times


async def ui(kind: StoreKind, *, rounds: int, seconds: float, quick: bool) -> Json:
    results: Json = {"machine": machine_facts(), "store": str(kind), "rounds": rounds}
    async with databases(kind) as made:
        results["live_viewers"] = await live_viewers(made, rounds=rounds, seconds=seconds, quick=quick)
        results["page_times"] = await page_times(made, rounds=rounds, quick=quick)
    return results
