"""The log of a principal while units of several nodes append to it: seq is the order of the commits, without holes."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from ringback.domain.event import Event
from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from tests.support.builders import make_event
from tests.support.clock import FakeClock
from tests.support.examples import ALICE, BOB
from tests.support.interleaving import Node, open_nodes
from tests.support.limits import WAIT_SECONDS

UNITS, UNITS_DEEP = 300, 10_000
UNITS_AT_ONCE: Final = 20
PAUSES_MAX: Final = 3
EVENTS_MAX: Final = 3
ROLLED_BACK: Final = 0.1


@dataclass(slots=True)
class Appending:
    """Units that append to a log on several nodes, with pauses at random places, and sometimes roll back."""

    nodes: Sequence[Node]
    chance: random.Random
    committed: set[str] = field(default_factory=set[str])

    async def append_in_units(self, count: int) -> None:
        for start in range(0, count, UNITS_AT_ONCE):
            await asyncio.gather(*(self._append_in_unit(start + number) for number in range(UNITS_AT_ONCE)))

    async def _append_in_unit(self, number: int) -> None:
        node = self.nodes[number % len(self.nodes)]
        pauses = [self.chance.randrange(PAUSES_MAX) for _ in range(self.chance.randint(1, EVENTS_MAX))]
        rolls_back = self.chance.random() < ROLLED_BACK
        try:
            events = await node.store.write(partial(_append, pauses=pauses, rolls_back=rolls_back))
        except LookupError:
            return
        self.committed.update(event.id for event in events)


async def _append(tx: Transaction, pauses: Sequence[int], *, rolls_back: bool) -> Sequence[Event]:
    await _pause(tx, pauses[0])
    first = await tx.events.reserve_seqs(ALICE, len(pauses))
    events = [make_event(principal=ALICE, seq=first + number) for number in range(len(pauses))]
    for event, count in zip(events, pauses, strict=True):
        await _pause(tx, count)
        await tx.events.insert([event])
    if rolls_back:
        raise LookupError
    return events


async def _pause(tx: Transaction, count: int) -> None:
    for _ in range(count):
        await tx.pause()


async def follow_log(node: Node, seen: list[Event]) -> None:
    """Read the log as a client does: what follows the last event that it has."""
    while True:
        position = seen[-1].seq if seen else 0
        read = partial(_read_after, position=position)
        seen.extend(await node.store.read(read))
        await asyncio.sleep(0)


async def _read_after(tx: Transaction, position: int) -> Sequence[Event]:
    return await tx.events.list_after(ALICE, position, EventFilter(), limit=1_000)


async def test_a_reader_of_the_log_skips_no_event_whatever_the_order_of_the_commits(
    tmp_path: Path, clock: FakeClock, *, deep: bool
) -> None:
    async with open_nodes(tmp_path, clock) as nodes:
        appending = Appending((nodes.first, nodes.second), random.Random(13))
        seen: list[Event] = []
        following = asyncio.create_task(follow_log(nodes.second, seen))

        await appending.append_in_units(UNITS_DEEP if deep else UNITS)
        following.cancel()
        await asyncio.wait([following])
        seen.extend(await nodes.first.store.read(partial(_read_after, position=seen[-1].seq)))

        assert [event.seq for event in seen] == list(range(1, len(appending.committed) + 1))
        assert {event.id for event in seen} == appending.committed


async def test_units_that_lock_two_logs_in_opposite_orders_both_commit(tmp_path: Path, clock: FakeClock) -> None:
    """The store finds the deadlock, and runs one of the units again."""
    async with open_nodes(tmp_path, clock) as nodes:
        holding: set[Principal] = set()

        async def lock(tx: Transaction, first: Principal, second: Principal) -> None:
            await tx.event_log.get_head(first, lock=True)
            holding.add(first)
            while nodes.first is not nodes.second and len(holding) < len((ALICE, BOB)):
                await tx.pause()
            await tx.event_log.get_head(second, lock=True)

        async with asyncio.timeout(WAIT_SECONDS):
            await asyncio.gather(
                nodes.first.store.write(partial(lock, first=ALICE, second=BOB)),
                nodes.second.store.write(partial(lock, first=BOB, second=ALICE)),
            )
