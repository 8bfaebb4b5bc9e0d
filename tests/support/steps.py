"""How much work SQLite does, counted in instructions of its virtual machine: the same on every machine, however busy it is."""

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

EVERY: Final = 10
"""Instructions between two counts: rough enough to be cheap, and fine against the thousands that a test tells apart."""


@dataclass(slots=True)
class Steps:
    count: int = 0


@contextmanager
def counting(connection: sqlite3.Connection) -> Generator[Steps]:
    """Counts what the connection does meanwhile."""
    steps = Steps()

    def step() -> int:
        steps.count += EVERY
        return 0

    connection.set_progress_handler(step, EVERY)
    try:
        yield steps
    finally:
        connection.set_progress_handler(None, EVERY)
