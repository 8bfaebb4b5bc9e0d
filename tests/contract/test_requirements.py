"""The manifest and the tests' marks agree, in both directions.

Marks are read from the sources and not from what was collected, so the answer is whole also when a single test runs.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.requirements import REQUIREMENTS, Deferred

TESTS = Path(__file__).parents[1]
ROW_COUNT = 35
_MARK = re.compile(r"""\.requirement\((?:"(?P<row>[^"]+)"\))?""")


def test_the_manifest_has_every_row_once() -> None:
    assert [row.id for row in REQUIREMENTS] == [f"R{number:02}" for number in range(1, ROW_COUNT + 1)]


def test_every_row_that_is_done_or_partly_done_is_shown_by_a_test() -> None:
    shown = set(_list_marked_rows())
    assert [row.id for row in REQUIREMENTS if not isinstance(row.status, Deferred) and row.id not in shown] == []


def test_no_test_shows_a_row_that_is_deferred() -> None:
    shown = _list_marked_rows()
    assert {row.id: shown[row.id] for row in REQUIREMENTS if isinstance(row.status, Deferred) and row.id in shown} == {}


def test_no_test_names_a_row_that_does_not_exist() -> None:
    known = {row.id for row in REQUIREMENTS}
    assert {row: places for row, places in _list_marked_rows().items() if row not in known} == {}


@cache
def _list_marked_rows() -> dict[str, list[str]]:
    """Every row that a mark names, with the places of its marks."""
    shown: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            for row in _find_rows(line):
                shown.setdefault(row, []).append(f"{path.relative_to(TESTS)}:{number}")
    return shown


def _find_rows(line: str) -> Iterator[str]:
    """The row of each mark: of a function, of a class, in `pytestmark`, of a parameter."""
    for mark in _MARK.finditer(line):
        yield mark["row"] or "a mark that is not one literal row"
