"""The base class of the client's groups of methods: a transport, a clock, and lists read page by page."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, TypeVar

from ringback.client.http_transport import ClientClock, HttpTransport
from ringback.client.models import ListPage

P = TypeVar("P", bound=ListPage)

WAIT_SECONDS_MAX: Final = 45.0
"""The service's longest wait within one request, by default. A service with another maximum responds earlier or as asked."""
LONG_POLL_SPACING_SECONDS: Final = 1.0
"""The shortest time between the starts of two long polls, because a service that shuts down responds early."""


class ResourceClient:
    def __init__(self, transport: HttpTransport, clock: ClientClock) -> None:
        self._transport = transport
        self._clock = clock

    async def _sleep_until(self, instant: float) -> None:
        await self._clock.sleep(max(0.0, instant - self._clock.monotonic()))

    async def _iterate_pages(self, model: type[P], path: str, where: Mapping[str, Any]) -> AsyncIterator[P]:
        cursor: str | None = None
        while True:
            page = await self._transport.fetch_model(
                model, "GET", path, params=without_none({**where, "cursor": cursor})
            )
            yield page
            if page.next_cursor is None:
                return
            cursor = page.next_cursor


def without_none(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}
