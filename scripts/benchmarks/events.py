"""`scripts/bench events`: MCP Events at scale. Growth is the ratio of many to few."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from scripts.benchmarks.databases import StoreKind, databases
from scripts.benchmarks.event_matching import FEW, MANY, measure_matching
from scripts.benchmarks.event_streams import measure_streams
from scripts.benchmarks.event_subscribing import measure_subscribing
from scripts.benchmarks.measurement import Json, machine_facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    subscriptions: Mapping[str, int]
    streams: Mapping[str, int]
    calls: int
    """Calls that end beside the subscriptions, in all rounds together."""
    stream_calls: int
    """Calls that end beside the idle streams."""
    requests: int
    """Requests of each kind in each round."""
    idle_seconds: float
    """Longer than two heartbeats of a stream."""


FULL: Final = Scale(
    subscriptions={FEW: 100, MANY: 10_000},
    streams={FEW: 100, MANY: 10_000},
    calls=1_000,
    stream_calls=50,
    requests=50,
    idle_seconds=30.0,
)
QUICK: Final = Scale(
    subscriptions={FEW: 10, MANY: 100},
    streams={FEW: 5, MANY: 50},
    calls=20,
    stream_calls=5,
    requests=5,
    idle_seconds=1.0,
)


async def events(kind: StoreKind, *, rounds: int, quick: bool) -> Json:
    """The streams are those of a service on SQLite, whatever the store of the rest is: they read one log once."""
    scale = QUICK if quick else FULL
    async with databases(kind) as made:
        matching = await measure_matching(made, scale.subscriptions, rounds=rounds, calls=scale.calls)
        subscribing = await measure_subscribing(made, scale.subscriptions, rounds=rounds, requests=scale.requests)
    streams = await measure_streams(scale.streams, calls=scale.stream_calls, idle_seconds=scale.idle_seconds)
    return {
        "machine": machine_facts(),
        "store": str(kind),
        "rounds": rounds,
        "matching": matching,
        "subscribing": subscribing,
        "streams": streams,
    }
