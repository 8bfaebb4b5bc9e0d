"""Pages of lists, newest first: a cursor is the id of the last thing on the page before."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from ringback.domain import pages
from ringback.domain.cursor import List, encode

LIMIT_DEFAULT: Final = 50
LIMIT_MAX: Final = 100
"""At most so many things on a page: what a client can show, and what a store reads without being noticed."""

NEXT_CURSOR: Final = (
    "Where the list goes on; null at its end, and only there. With a filter that little matches, a page may be short or empty "
    "and the list still go on: one request looks at a bounded number of rows."
)


class Listed(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=Listed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    things: Sequence[T]
    next_cursor: str | None


def page_from(listing: List, found: pages.Page[T, str]) -> Page[T]:
    """What the store found in one bounded look: it may be nothing although the list goes on."""
    return Page(things=found, next_cursor=None if found.next_place is None else encode(listing, found.next_place))


def page_of(listing: List, found: Sequence[T], *, limit: int) -> Page[T]:
    """A page from what was found when one more than `limit` was asked for."""
    things = found[:limit]
    return Page(things=things, next_cursor=encode(listing, things[-1].id) if len(found) > limit else None)
