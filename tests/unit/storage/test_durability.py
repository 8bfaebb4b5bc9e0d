"""`kill -9` of a process that writes: every acknowledged write is in the database."""

import select
import subprocess
import sys
from pathlib import Path

import pytest

from ringback.domain.event_rows import EventFilter
from ringback.domain.ports import Transaction
from ringback.storage.open import open_store
from tests.support.clock import FakeClock
from tests.support.examples import ALICE
from tests.support.stores import make_sealer

ROOT = Path(__file__).parents[3]
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
    """Every place in the log that the writer printed as acknowledged before it was killed."""
    command = [sys.executable, "-m", "tests.unit.storage.event_writer_process", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as writer:
        assert writer.stdout is not None
        lines: list[bytes] = []
        while len(lines) < ACKNOWLEDGED_MIN:
            assert select.select([writer.stdout], [], [], 30)[0], "the writer says nothing"
            lines.append(writer.stdout.readline())
        writer.kill()
        lines += writer.stdout.read().splitlines(keepends=True)
    return [int(line) for line in lines if line.endswith(b"\n")]
