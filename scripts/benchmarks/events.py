"""`scripts/bench events`: MCP Events at scale. Growth is the ratio of many to few."""

from typing import Final

from scripts.benchmarks.databases import StoreKind, databases
from scripts.benchmarks.event_matching import FEW, MANY, measure_matching
from scripts.benchmarks.measurement import Json, machine_facts

SUBSCRIPTIONS: Final = {FEW: 100, MANY: 10_000}
QUICK_SUBSCRIPTIONS: Final = {FEW: 10, MANY: 100}
CALLS: Final = 1_000
QUICK_CALLS: Final = 20


async def events(kind: StoreKind, *, rounds: int, quick: bool) -> Json:
    subscriptions, calls = (QUICK_SUBSCRIPTIONS, QUICK_CALLS) if quick else (SUBSCRIPTIONS, CALLS)
    async with databases(kind) as made:
        return {
            "machine": machine_facts(),
            "store": str(kind),
            "rounds": rounds,
            "matching": await measure_matching(made, subscriptions, rounds=rounds, calls=calls),
        }
