"""Units of work that pause around their statements: their node goes on meanwhile, and begins other units.

A unit holds the database from its first statement until its end, so rows see one unit after the other. What units read and
write in the memory of their node interleaves, as it does on PostgreSQL.
"""

import sqlite3
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, Final, TypeVar

from ringback.domain.ports import Transaction
from ringback.storage.codec import RowCodec
from ringback.storage.rows.unit import PAUSED, Pause
from ringback.storage.sqlite.statements import SqliteStatements, load_sql
from ringback.storage.units import UnitOfWork

T = TypeVar("T")

STEP_SECONDS_MAX: Final = 0.002
"""The longest pause around a statement. Each is drawn."""


class PausingStatements(SqliteStatements):
    """The statements of one noun. `enter` takes the database, and returns False while another unit holds it."""

    __slots__ = ("_enter",)

    def __init__(self, enter: Callable[[], bool], connection: sqlite3.Connection, noun: str) -> None:
        super().__init__(connection, load_sql(noun))
        self._enter = enter

    async def fetch_all(self, name: str, /, **parameters: Any) -> list[sqlite3.Row]:
        await self._wait_for_database()
        rows = await super().fetch_all(name, **parameters)
        await Pause()
        return rows

    async def fetch_one(self, name: str, /, **parameters: Any) -> sqlite3.Row | None:
        await self._wait_for_database()
        row = await super().fetch_one(name, **parameters)
        await Pause()
        return row

    async def fetch_records(self, name: str, codec: RowCodec[T], /, **parameters: Any) -> list[T]:
        await self._wait_for_database()
        records = await super().fetch_records(name, codec, **parameters)
        await Pause()
        return records

    async def fetch_record(self, name: str, codec: RowCodec[T], /, **parameters: Any) -> T | None:
        await self._wait_for_database()
        record = await super().fetch_record(name, codec, **parameters)
        await Pause()
        return record

    async def execute(self, name: str, /, **parameters: Any) -> int:
        await self._wait_for_database()
        count = await super().execute(name, **parameters)
        await Pause()
        return count

    async def execute_many(self, name: str, /, rows: Iterable[Mapping[str, Any]]) -> None:
        await self._wait_for_database()
        await super().execute_many(name, rows)
        await Pause()

    async def _wait_for_database(self) -> None:
        """The first statement of a unit pauses before it takes the database; each later one follows a pause."""
        while not self._enter():
            await Pause()


class SteppedUnit:
    """One run of a unit, from pause to pause."""

    def __init__(self, unit: UnitOfWork, transaction: Transaction) -> None:
        self._unit = unit
        self._steps: Generator[Any, Any, Any] = unit.work(transaction).__await__()

    def advance(self) -> bool:
        """Go on to the next pause. Returns True at the end; the unit then has its value, or the error that it raised."""
        try:
            if next(self._steps) is PAUSED:
                return False
            self.abort(RuntimeError("A unit of work waited for something that is not its transaction."))
        except StopIteration as end:
            self._unit.value = end.value
        except Exception as error:  # noqa: BLE001 - boundary: the error is its caller's
            self._unit.error = error
        return True

    def abort(self, error: Exception) -> None:
        self._steps.close()
        self._unit.error = error
