"""What the groups of methods stand on: one wire, one clock, and lists that are read page by page."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

from ringback.client.models import Page
from ringback.client.wire import Clock, Wire

P = TypeVar("P", bound=Page)

WAIT_SECONDS_MAX: Final = 60.0
"""The longest that the service waits within one request."""
SPACING_SECONDS: Final = 1.0
"""At least so long between two long polls: a service that is stopping cuts its waits short."""


class Methods:
    def __init__(self, *, wire: Wire, clock: Clock) -> None:
        self._wire = wire
        self._clock = clock

    async def _sleep_until(self, instant: float) -> None:
        await self._clock.sleep(max(0.0, instant - self._clock.monotonic()))

    async def _pages(self, model: type[P], path: str, where: Mapping[str, Any]) -> AsyncIterator[P]:
        cursor: str | None = None
        while True:
            page = await self._wire.fetch(model, "GET", path, params=given({**where, "cursor": cursor}))
            yield page
            if page.next_cursor is None:
                return
            cursor = page.next_cursor


def given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def segment(text: str) -> str:
    """An id or a name as one segment of a path, whatever is in it."""
    return quote(text, safe="")
