"""Counts SQLite's work in instructions of its virtual machine, which are the same on every machine at any load.

The copy of the log is not counted: it runs each second, so what it copies during a test depends on the machine.
"""

import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from ringback.storage.sqlite.checkpointer import THREAD_NAME

INSTRUCTIONS_PER_STEP: Final = 10
"""Instructions between two counts: coarse enough to be cheap, and fine enough for tests that compare thousands."""


@dataclass(slots=True)
class VmSteps:
    count: int = 0


@contextmanager
def counting_vm_steps(connection: sqlite3.Connection) -> Generator[VmSteps]:
    """Counts what the connection does meanwhile.

    Leave it while no other thread uses the connection, or after it was closed: to remove the handler, Python waits for the
    statement that runs, and keeps the interpreter's lock, for which the handler of that statement waits.
    """
    steps = VmSteps()

    def add_steps() -> int:
        if not threading.current_thread().name.startswith(THREAD_NAME):
            steps.count += INSTRUCTIONS_PER_STEP
        return 0

    connection.set_progress_handler(add_steps, INSTRUCTIONS_PER_STEP)
    try:
        yield steps
    finally:
        with suppress(sqlite3.ProgrammingError):  # it is closed
            connection.set_progress_handler(None, INSTRUCTIONS_PER_STEP)
