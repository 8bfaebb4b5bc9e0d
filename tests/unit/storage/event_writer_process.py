"""A process that appends events from several tasks at once and prints each place once it is acknowledged. It never ends.

python -m tests.unit.storage.event_writer_process DATABASE
"""

import asyncio
import os
import sys

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


async def main(path: str) -> None:
    async with open_store(path, clock=FakeClock(), sealer=make_sealer(), exclusive=True) as store:

        async def write_for_ever() -> None:
            while True:
                seq = await store.write(append)
                os.write(sys.stdout.fileno(), b"%d\n" % seq)

        await asyncio.gather(*(write_for_ever() for _ in range(TASKS)))


asyncio.run(main(sys.argv[1]))
