"""A unit of work on one connection: what its rows share, and how it runs to its end without waiting for anything else."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Generator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, TypeVar

from ringback.domain.encryption import Sealer
from ringback.storage.sqlite.columns import load_sql
from ringback.storage.sqlite.database import Statements

T = TypeVar("T")

_PAUSED: Final = object()
"""The only value that a unit of work yields: at a pause."""


@dataclass(frozen=True, slots=True)
class UnitContext:
    connection: sqlite3.Connection
    sealer: Sealer
    now: datetime


class SqliteRows:
    """One kind of rows within a unit of work. Its statements are in `sql/<noun>.sql`."""

    statements: ClassVar[Mapping[str, str]]

    def __init_subclass__(cls, *, noun: str | None = None) -> None:
        if noun is not None:
            cls.statements = load_sql(noun)

    def __init__(self, unit: UnitContext) -> None:
        self._unit = unit
        self._sql = Statements(unit.connection, self.statements)


class Pause:
    """A point within a unit of work at which the event loop may run others."""

    def __await__(self) -> Generator[object, None, None]:
        yield _PAUSED


def run_to_completion(awaitable: Awaitable[T]) -> T:
    """Run without an event loop, and without pausing. Raises RuntimeError for work that waits for anything."""
    steps = awaitable.__await__()
    while True:
        try:
            reached = next(steps)
        except StopIteration as end:
            return end.value
        _require_pause(reached, steps)


async def run_in_steps(awaitable: Awaitable[T]) -> T:
    """As `run_to_completion`, but at each pause the event loop runs others."""
    steps = awaitable.__await__()
    while True:
        try:
            reached = next(steps)
        except StopIteration as end:
            return end.value
        _require_pause(reached, steps)
        try:
            await asyncio.sleep(0)
        except BaseException:
            steps.close()
            raise


def _require_pause(reached: object, steps: Generator[Any, Any, Any]) -> None:
    if reached is not _PAUSED:
        steps.close()
        raise RuntimeError(
            "A unit of work waited for something that is not its transaction. Do that before or after, never inside."
        )
