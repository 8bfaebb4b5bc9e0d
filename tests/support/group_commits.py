"""Units of work for tests of group commits."""

import resource
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ringback.domain.ports import Transaction
from ringback.storage.sqlite.group_commit import (
    GroupCommit,
)
from tests.support.examples import ALICE


async def reserve(tx: Transaction) -> int:
    tx.notify("grown")
    return await tx.events.reserve_seqs(ALICE, 1)


def add_end_actions(tx: Transaction, committed: list[bool]) -> None:
    """Append True once the transaction is committed, False once it is rolled back."""
    tx.on_commit(lambda: committed.append(True))
    tx.on_rollback(lambda: committed.append(False))


async def head(writer: GroupCommit) -> int:
    return await writer.write(lambda tx: tx.event_log.get_head(ALICE))


@contextmanager
def full_disk(path: Path) -> Generator[None]:
    """The operating system refuses to let the write-ahead log grow."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name(f"{path.name}-wal").stat().st_size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
