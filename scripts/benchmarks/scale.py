"""`scripts/bench scale`: the cost of each operation beside few and beside many rows that it is not about, in one run.

Design §12: nothing grows with what does not match. The plan tests show it by counting the rows and pages that each statement
visits; this benchmark shows what remains in time: deeper indexes and colder caches.
"""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass
from typing import Final

from ringback.domain.call_rows import CallFilter
from ringback.domain.clock import seconds
from ringback.domain.delivery_rows import DeliveryFilter
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Transaction
from scripts.benchmarks.backlog import backlog
from scripts.benchmarks.crowds import FIRST_NUMBER, Crowd, fill
from scripts.benchmarks.databases import Databases, StoreKind, databases
from scripts.benchmarks.engine import BenchmarkEngine, count_until, open_engine
from scripts.benchmarks.measurement import Json, machine_facts, print_progress, summary
from scripts.benchmarks.receivers import Receivers, receivers
from scripts.benchmarks.signed_post import HANDOFF_LEASE, PRINCIPAL

FEW: Final = Crowd(webhooks=1_000, calls=1_000, deliveries=10_000)
MANY: Final = Crowd(webhooks=100_000, calls=100_000, deliveries=100_000)
DEEP: Final = Crowd(webhooks=1_000_000, calls=1_000_000, deliveries=1_000_000)
QUICK_FEW: Final = Crowd(webhooks=100, calls=100, deliveries=100)
QUICK_MANY: Final = Crowd(webhooks=1_000, calls=1_000, deliveries=1_000)
MANY_PRINCIPALS: Final = 10_000
ENDS: Final = 50
"""Calls that end in a round, one after the other; their deliveries are sent afterwards."""
CLAIMS: Final = 20
LISTS: Final = 20
PAGE: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """An engine beside a crowd."""

    engine: BenchmarkEngine
    crowd: Crowd
    urls: Sequence[str]


Operation = Callable[[Place], Awaitable[float]]
"""Runs some operations, and returns the seconds of each."""


async def scale(kind: StoreKind, *, rounds: int, quick: bool, deep: bool) -> Json:
    few, many = (QUICK_FEW, QUICK_MANY) if quick else (FEW, DEEP if deep else MANY)
    results: Json = {"machine": machine_facts(), "store": str(kind), "rounds": rounds, "few": asdict(few)}
    async with receivers() as found, databases(kind) as made:
        for name, principals in {
            "webhooks_of_one_principal": 1,
            "webhooks_of_many_principals": MANY_PRINCIPALS,
        }.items():
            crowd = Crowd(**asdict(many) | {"principals": principals})
            results[name] = {"many": asdict(crowd)} | await _compare(found, made, few, crowd, rounds=rounds)
            print_progress(f"{name}: {results[name]['growth']}")
        results["backlog_after_an_outage"] = await backlog(made, rounds=rounds, quick=quick)
    return results


async def _compare(found: Receivers, made: Databases, few: Crowd, many: Crowd, *, rounds: int) -> Json:
    """Median milliseconds beside few and many rows, and the growth from one to the other in the same round."""
    async with AsyncExitStack() as stack:
        places = {name: await _open(stack, found, made, crowd) for name, crowd in {"few": few, "many": many}.items()}
        taken: dict[str, dict[str, list[float]]] = {name: {"few": [], "many": []} for name in OPERATIONS}
        for number in range(rounds):
            order = list(places.items()) if number % 2 == 0 else list(places.items())[::-1]
            for operation, run in OPERATIONS.items():
                for size, place in order:
                    taken[operation][size].append(await run(place))
    return {
        "growth": {
            name: summary([after / before for before, after in zip(each["few"], each["many"], strict=True)], 2)[
                "median"
            ]
            for name, each in taken.items()
        },
        "ms": {
            name: {size: summary([each * 1000 for each in values], 3) for size, values in sizes.items()}
            for name, sizes in taken.items()
        },
    }


async def _open(stack: AsyncExitStack, found: Receivers, made: Databases, crowd: Crowd) -> Place:
    url = await stack.enter_async_context(made.empty_database())
    began = time.perf_counter()
    await fill(url, crowd)
    print_progress(f"filled with {asdict(crowd)} in {time.perf_counter() - began:.1f} s")
    engine = await stack.enter_async_context(open_engine(url))
    urls = found.urls("/fast")
    await engine.insert_webhooks(urls)
    place = Place(engine=engine, crowd=crowd, urls=urls)
    for run in OPERATIONS.values():  # the first run opens connections and plans statements
        await run(place)
    return place


async def _end_calls(place: Place) -> float:
    calls = await place.engine.running_calls(place.urls, ENDS)
    began = time.perf_counter()
    for call in calls:
        await place.engine.finish_call(call)
    return (time.perf_counter() - began) / ENDS


async def _claim_deliveries(place: Place) -> float:
    """Find what is due and lease one delivery, and undo it, so that the next operation finds all of them."""

    async def claim(tx: Transaction) -> None:
        now = tx.now()
        due = await tx.delivery_queue.list_due_webhooks(now=now, excluding=(), limit=64)
        leased = await tx.delivery_queue.lease_due(
            due[0], now=now, owner="bench", token=HANDOFF_LEASE, until=now + seconds(60), limit=1, ordered=False
        )
        if len(leased) != 1:
            raise RuntimeError("nothing is due, so the claim costs nothing")
        raise _UndoneError

    began = time.perf_counter()
    for _ in range(CLAIMS):
        with suppress(_UndoneError):
            await place.engine.store.write(claim)
    return (time.perf_counter() - began) / CLAIMS


class _UndoneError(Exception):
    """Rolls the unit of work back."""


async def _deliver(place: Place) -> float:
    """Send the callbacks of the calls that ended before, until the last attempt is recorded."""
    all_answered = count_until(place.engine.sender, ENDS)
    began = time.perf_counter()
    async with place.engine.running_dispatcher() as stop:
        await all_answered.wait()
        stop.set()
    return (time.perf_counter() - began) / ENDS


def _reading(work: Callable[[Transaction, Place], Awaitable[Sequence[object]]]) -> Operation:
    async def read(place: Place) -> float:
        began = time.perf_counter()
        for _ in range(LISTS):
            if not await place.engine.store.read(lambda tx: work(tx, place)):
                raise RuntimeError("the page is empty, so it costs nothing")
        return (time.perf_counter() - began) / LISTS

    return read


def _middle(prefix: str, count: int) -> str:
    return f"{prefix}_{FIRST_NUMBER + count // 2}"


OPERATIONS: Final[Mapping[str, Operation]] = {
    "end_of_a_call": _end_calls,
    "claim": _claim_deliveries,
    "delivery": _deliver,
    "calls_page": _reading(lambda tx, _: tx.calls.list_page(PRINCIPAL, CallFilter(), position=None, limit=PAGE)),
    "calls_page_at_depth": _reading(
        lambda tx, place: tx.calls.list_page(
            PRINCIPAL, CallFilter(), position=_middle("call", place.crowd.calls), limit=PAGE
        )
    ),
    "deliveries_page_at_depth": _reading(
        lambda tx, place: tx.deliveries.list_page(
            PRINCIPAL, DeliveryFilter(), position=_middle("dlv", place.crowd.deliveries), limit=PAGE
        )
    ),
    "poll_at_depth": _reading(
        lambda tx, place: tx.events.list_after(PRINCIPAL, place.crowd.calls // 2, EventFilter(), limit=PAGE)
    ),
    "webhooks_page": _reading(lambda tx, _: tx.webhooks.list_page(PRINCIPAL, None, position=None, limit=PAGE)),
}
"""In this order: claims and deliveries need what the ends have written."""
