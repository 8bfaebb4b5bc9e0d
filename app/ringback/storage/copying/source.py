"""The rows of a SQLite file, in the order of their keys, in batches of bounded size."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ringback.domain.errors import StoreUnavailable
from ringback.storage.sqlite.commit_counter import require_no_missing_commits
from ringback.storage.sqlite.database import connect
from ringback.storage.sqlite.file_lock import FileLock
from ringback.storage.sqlite.use_mark import mark_moved, require_whole_if_unused
from ringback.storage.urls import describe_database

Key = tuple[Any, ...]
Row = tuple[Any, ...]

BATCH_ROWS_MAX: Final = 2_000
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
"""Two of the largest results that are accepted by default; a batch is in memory three times."""
LOCK_WAIT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class CopiedTable:
    name: str
    key: tuple[str, ...]
    """The columns of the primary key."""
    columns: tuple[str, ...]
    booleans: frozenset[str] = frozenset()
    """Columns in which SQLite has 0 and 1."""

    def key_of(self, row: Row) -> Key:
        return tuple(row[self.columns.index(name)] for name in self.key)


class CopySource:
    """Reads short transactions only: while the service runs, a long one would let its write-ahead log grow."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise StoreUnavailable(f"There is no database at '{path}'.", needs_operator=True)
        require_whole_if_unused(path)
        self._connection = connect(path, lock_wait_seconds=LOCK_WAIT_SECONDS)
        self._connection.row_factory = None  # plain tuples
        self.replaced_characters = 0
        """U+0000 in texts that were read: PostgreSQL cannot store it, and gets U+FFFD."""

    def close(self) -> None:
        self._connection.close()

    def require_no_missing_commits(self, lock: FileLock) -> None:
        """Raise `StoreUnavailable` if the file has lost commits since a service wrote it."""
        require_no_missing_commits(self._connection, lock, accept_missing=False)

    def mark_moved(self, lock: FileLock, target: str) -> bool:
        """Let no service open the file by mistake. False if the file cannot be written: the copy is finished all the same."""
        with suppress(OSError):
            lock.write_moved_to(describe_database(target))
        return mark_moved(self._connection)

    def count_calls_by_status(self) -> Mapping[str, int]:
        return dict(self._connection.execute("SELECT status, count(*) FROM calls GROUP BY status"))

    def count(self, table: str) -> int:
        (count,) = self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608 - a name of ours
        return int(count)

    def read_batch(self, table: CopiedTable, after: Key | None) -> tuple[Sequence[Row], bool]:
        """The next rows after this key, as PostgreSQL stores them, and whether they are the last."""
        key, columns = _names(table.key), _names(table.columns)
        where = f"WHERE ({key}) > ({', '.join('?' * len(table.key))})" if after is not None else ""
        cursor = self._connection.execute(
            f"SELECT {columns} FROM {table.name} {where} ORDER BY {key}",  # noqa: S608 - names of ours
            after or (),
        )
        rows: list[Row] = []
        size = 0
        try:
            for row in cursor:
                rows.append(self._convert(table, row))
                size += sum(len(value) for value in row if isinstance(value, str | bytes))
                if len(rows) == BATCH_ROWS_MAX or size >= BATCH_BYTES_MAX:
                    return rows, False
        finally:
            cursor.close()  # ends its transaction
        return rows, True

    def _convert(self, table: CopiedTable, row: Row) -> Row:
        return tuple(
            self._convert_value(value, is_boolean=name in table.booleans)
            for name, value in zip(table.columns, row, strict=True)
        )

    def _convert_value(self, value: Any, *, is_boolean: bool) -> Any:
        if is_boolean and value is not None:
            return bool(value)
        if isinstance(value, str) and "\0" in value:
            self.replaced_characters += value.count("\0")
            return value.replace("\0", "\N{REPLACEMENT CHARACTER}")
        return value


def _names(columns: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)
