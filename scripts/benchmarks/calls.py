"""`scripts/bench calls`: ten thousand waiting calls, and the cost of one call."""

from scripts.benchmarks.measurement import Json, machine_facts
from scripts.benchmarks.overhead import overhead
from scripts.benchmarks.waiting import IDLE_SECONDS, WAITING, measure_waiting_calls


async def calls(*, rounds: int, seconds: float, quick: bool) -> Json:
    count, idle_seconds = (100, 1.0) if quick else (WAITING, IDLE_SECONDS)
    return {
        "machine": machine_facts(),
        "rounds": rounds,
        "overhead": await overhead(rounds=rounds, seconds=seconds),
        "waiting_in_the_queue": await measure_waiting_calls(
            "hold", calls=count, idle_seconds=idle_seconds, at_once=count // 40
        ),
        "waiting_at_the_upstream": await measure_waiting_calls(
            "hold", calls=count, idle_seconds=idle_seconds, at_once=count
        ),
        "waiting_for_tasks": await measure_waiting_calls("work", calls=count, idle_seconds=idle_seconds, at_once=count),
    }
