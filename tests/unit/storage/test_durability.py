"""`kill -9` of a process that writes: every acknowledged write is in the database."""

import multiprocessing
from contextlib import suppress
from pathlib import Path

import pytest

from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Transaction
from ringback.storage.open import open_store
from tests.support.clock import FakeClock
from tests.support.examples import ALICE
from tests.support.limits import WAIT_SECONDS
from tests.support.processes import FORK_SERVER
from tests.support.stores import make_sealer
from tests.unit.storage.event_writer_process import write_for_ever

ACKNOWLEDGED_MIN = 100


@pytest.mark.requirement("R35")
async def test_a_killed_writer_loses_nothing_that_was_acknowledged(tmp_path: Path, *, deep: bool) -> None:
    for number in range(20 if deep else 1):
        await kill_and_compare(tmp_path / f"ringback-{number}.db")


async def kill_and_compare(path: Path) -> None:
    acknowledged = write_until_killed(path)

    async with open_store(str(path), clock=FakeClock(), sealer=make_sealer(), exclusive=True) as store:

        async def read(tx: Transaction) -> tuple[list[int], int]:
            events = await tx.events.list_after(ALICE, 0, EventFilter(), limit=1_000_000)
            return [event.seq for event in events], await tx.event_log.get_head(ALICE)

        kept, head = await store.read(read)

    assert len(acknowledged) >= ACKNOWLEDGED_MIN
    assert set(acknowledged) <= set(kept)
    assert kept == list(range(1, head + 1))


def write_until_killed(path: Path) -> list[int]:
    """Every place in the log that the writer sent as acknowledged before it was killed."""
    reader, writer = multiprocessing.Pipe(duplex=False)
    process = FORK_SERVER.Process(target=write_for_ever, args=(str(path), writer))
    process.start()
    writer.close()
    with reader:
        acknowledged: list[int] = []
        while len(acknowledged) < ACKNOWLEDGED_MIN:
            assert reader.poll(WAIT_SECONDS), "the writer says nothing"
            acknowledged.append(reader.recv())
        process.kill()
        with suppress(EOFError, OSError):  # OSError in the middle of a message
            while True:
                acknowledged.append(reader.recv())
    process.join(WAIT_SECONDS)
    return acknowledged
