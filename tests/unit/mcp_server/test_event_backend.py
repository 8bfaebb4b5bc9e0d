"""A stream of an upstream's events: it renews its demand, and says what the upstream has lost."""

from collections.abc import AsyncGenerator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringback.domain.cursor import LogPosition
from ringback.domain.errors import QuotaExceeded, RingbackError, StoreUnavailable
from ringback.domain.event_types import EventType
from ringback.mcp_server.event_backend import DEMAND_INTERVAL_SECONDS, GatewayEventBackend
from ringback.protocol.mcp_events.backend import Interest, OccurrencePage
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

    async def get_gap_seq(self, *_: Any) -> int:
        return 0

    async def follow_events(self, *_: Any, **__: Any) -> AsyncGenerator[StreamPage]:
        for seq in range(3):
            yield StreamPage(position=LogPosition(seq))
            self.clock.advance(DEMAND_INTERVAL_SECONDS)


class LosingServices:
    """A gateway whose upstream loses events at a place of the log, and whose stream has a page at each of some places."""

    def __init__(self, gap_seqs: Sequence[int | RingbackError], seqs: Sequence[int]) -> None:
        self.clock = FakeClock()
        self.event_types = self.event_streams = self
        self._gap_seqs = iter(gap_seqs)
        self._seqs = seqs
        self.reads = 0

    async def find_event_type(self, *_: Any) -> EventType:
        return PUSHED

    async def demand_events(self, *_: Any) -> DemandedEvents:
        return DemandedEvents(None, is_new=False)

    async def get_gap_seq(self, *_: Any) -> int:
        self.reads += 1
        gap_seq = next(self._gap_seqs)
        if isinstance(gap_seq, RingbackError):
            raise gap_seq
        return gap_seq

    async def follow_events(self, *_: Any, **__: Any) -> AsyncGenerator[StreamPage]:
        for seq in self._seqs:
            yield StreamPage(position=LogPosition(seq))


@pytest.mark.parametrize(
    ("gap_seqs", "seqs", "expected"),
    [
        ([0, 12, 12], [10, 11, 13, 14], [False, False, True, False]),
        ([13, 13], [10, 12, 14], [False, False, True]),
        ([StoreUnavailable("Later."), 11], [10, 12, 14], [False, False, True]),
        ([], [10, 10, 10], [False, False, False]),
    ],
    ids=["while it is open", "after the page", "while the store is away", "idle"],
)
async def test_a_stream_says_once_that_the_upstream_has_lost_events(
    gap_seqs: Sequence[int | RingbackError], seqs: Sequence[int], expected: Sequence[bool]
) -> None:
    services = LosingServices(gap_seqs, seqs)

    pages = [page async for page in follow_pages(services)]

    assert [page.truncated for page in pages] == expected
    assert services.reads == len(gap_seqs)


def follow_pages(services: object) -> AsyncGenerator[OccurrencePage]:
    caller = SimpleNamespace(caller=CALLER, endpoint=SimpleNamespace(upstream=None))
    backend, interest = GatewayEventBackend(cast("Any", services)), Interest(name="git/pushed", arguments={})
    return backend.follow_occurrences(cast("Any", caller), interest, cursor=None, max_age_seconds=None)


async def follow(failure: RingbackError) -> list[EventErrorName | None]:
    """The error of each page."""
    return [page.error and page.error.name async for page in follow_pages(FakeServices(failure))]


async def test_a_demand_that_is_refused_later_ends_the_stream_with_an_error_of_events() -> None:
    with pytest.raises(EventError) as ended:
        await follow(QuotaExceeded("Full.", retry_after_seconds=1, quota="upstream_events", limit=32))

    assert ended.value.name == EventErrorName.RESOURCE_EXHAUSTED


async def test_a_stream_goes_on_with_an_error_frame_while_the_demand_cannot_be_stored() -> None:
    assert await follow(StoreUnavailable("Later.")) == [None, None, EventErrorName.INTERNAL_ERROR, None]
