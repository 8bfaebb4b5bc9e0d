"""A stream that renews its demand for an upstream's events after it has begun."""

from collections.abc import AsyncGenerator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringback.domain.cursor import LogPosition
from ringback.domain.errors import QuotaExceeded, RingbackError, StoreUnavailable
from ringback.domain.event_types import EventType
from ringback.mcp_server.event_backend import DEMAND_INTERVAL_SECONDS, GatewayEventBackend
from ringback.protocol.mcp_events.backend import Interest
from ringback.protocol.mcp_events.errors import EventError, EventErrorName
from ringback.services.events.event_demands import DemandedEvents
from ringback.services.events.event_streams import StreamPage
from tests.support.clock import FakeClock
from tests.support.interleaving import CALLER

PUSHED = EventType(
    name="git/pushed", own_name="pushed", upstream="git", description="", input_schema={}, payload_schema={}
)


class FakeServices:
    """A gateway whose second demand fails, and whose stream has a page for each interval."""

    def __init__(self, failure: RingbackError) -> None:
        self.clock = FakeClock()
        self.event_types = self.event_streams = self
        self._answers = iter([None, failure])

    async def find_event_type(self, *_: Any) -> EventType:
        return PUSHED

    async def demand_events(self, *_: Any) -> DemandedEvents:
        if (failure := next(self._answers, None)) is not None:
            raise failure
        return DemandedEvents(None, is_new=False)

    async def follow_events(self, *_: Any, **__: Any) -> AsyncGenerator[StreamPage]:
        for seq in range(3):
            yield StreamPage(position=LogPosition(seq))
            self.clock.advance(DEMAND_INTERVAL_SECONDS)


async def follow(failure: RingbackError) -> list[EventErrorName | None]:
    """The error of each page."""
    caller = SimpleNamespace(caller=CALLER, endpoint=SimpleNamespace(upstream=None))
    backend = GatewayEventBackend(cast("Any", FakeServices(failure)))
    interest = Interest(name="git/pushed", arguments={})
    pages = backend.follow_occurrences(cast("Any", caller), interest, cursor=None, max_age_seconds=None)
    return [page.error and page.error.name async for page in pages]


async def test_a_demand_that_is_refused_later_ends_the_stream_with_an_error_of_events() -> None:
    with pytest.raises(EventError) as ended:
        await follow(QuotaExceeded("Full.", retry_after_seconds=1, quota="upstream_events", limit=32))

    assert ended.value.name == EventErrorName.RESOURCE_EXHAUSTED


async def test_a_stream_goes_on_with_an_error_frame_while_the_demand_cannot_be_stored() -> None:
    assert await follow(StoreUnavailable("Later.")) == [None, None, EventErrorName.INTERNAL_ERROR, None]
