"""A process that appends events from several tasks at once and sends each place once it is acknowledged. It never ends."""

import asyncio
from multiprocessing.connection import Connection

from ringback.domain.ports import Transaction
from ringback.storage.open import open_store
from tests.support.builders import make_event
from tests.support.clock import FakeClock
from tests.support.examples import ALICE
from tests.support.stores import make_sealer

TASKS = 8


async def append(tx: Transaction) -> int:
    seq = await tx.events.reserve_seqs(ALICE, 1)
    await tx.events.insert([make_event(seq=seq)])
    return seq


def write_for_ever(path: str, acknowledged: Connection) -> None:
    asyncio.run(_write_for_ever(path, acknowledged))


async def _write_for_ever(path: str, acknowledged: Connection) -> None:
    async with open_store(path, clock=FakeClock(), sealer=make_sealer(), exclusive=True) as store:

        async def write() -> None:
            while True:
                acknowledged.send(await store.write(append))

        await asyncio.gather(*(write() for _ in range(TASKS)))
