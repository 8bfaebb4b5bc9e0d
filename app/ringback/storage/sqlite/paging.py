"""Pages of lists whose filters have no index of their own: a page visits so many rows and no more."""

import sqlite3
from collections.abc import Callable
from typing import Any, Final, TypeVar

from ringback.domain.cursor import Page
from ringback.storage.sqlite.database import Statements

T = TypeVar("T")

ROWS_SCANNED_MAX: Final = 5_000
"""Rows that are visited for one page: some 4 ms (0.7 µs a row, measured), and a million rows are seen in 200 pages."""


def fetch_scanned_page(
    sql: Statements, name: str, to_value: Callable[[sqlite3.Row], T], *, limit: int, **parameters: Any
) -> Page[T, str]:
    """The page that the statement `name` finds; `end_of_<name>` is asked where the look ended if it found too little."""
    scan = max(ROWS_SCANNED_MAX, limit + 1)
    page = fetch_indexed_page(sql, name, to_value, limit=limit, scan=scan, **parameters)
    if page.next_position is None and (end := sql.fetch_one(f"end_of_{name}", scan=scan, **parameters)) is not None:
        page.next_position = end["id"]
    return page


def fetch_indexed_page(
    sql: Statements, name: str, to_value: Callable[[sqlite3.Row], T], *, limit: int, **parameters: Any
) -> Page[T, str]:
    """The same for a statement whose index serves every filter: where it found too little, the list has ended."""
    rows = sql.fetch_all(name, limit=limit + 1, **parameters)
    return Page(map(to_value, rows[:limit]), next_position=rows[limit - 1]["id"] if len(rows) > limit else None)
