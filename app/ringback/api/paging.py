"""Pages of lists, newest first: a cursor is the id of the last thing on the page before."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from ringback.domain import cursor as pages
from ringback.domain.cursor import CursorList, encode_cursor


class HasId(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=HasId)


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorPage(Generic[T]):
    items: Sequence[T]
    next_cursor: str | None


def build_page(cursor_list: CursorList, page: pages.Page[T, str]) -> CursorPage[T]:
    """What the store found in one bounded look: it may be nothing although the list goes on."""
    return CursorPage(
        items=page, next_cursor=None if page.next_position is None else encode_cursor(cursor_list, page.next_position)
    )


def build_page_from_rows(cursor_list: CursorList, found: Sequence[T], *, limit: int) -> CursorPage[T]:
    """A page from what was found when one more than `limit` was asked for."""
    things = found[:limit]
    return CursorPage(
        items=things, next_cursor=encode_cursor(cursor_list, things[-1].id) if len(found) > limit else None
    )
