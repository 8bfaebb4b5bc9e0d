"""Pages: what one bounded look into a list found, and where the next look begins.

A store visits a bounded number of rows for one page, however few of them match. So a page may be short, or empty, before the
list has ended; `next_place` alone tells whether it has.
"""

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")
P = TypeVar("P")


class Page(list[T], Generic[T, P]):
    """The rows of one page, which is a list of them, and the place from which the list goes on."""

    def __init__(self, rows: Iterable[T] = (), *, next_position: P | None) -> None:
        super().__init__(rows)
        self.next_position = next_position
        """The place that the next page is asked with; None when this page came to the end of the list."""
