"""Batches of one request leave half of the time to others, and a request with one batch waits for nothing."""

from itertools import pairwise

from ringback.services.limits.pacing import BATCH_PAUSE_SECONDS_MAX, BatchPace
from tests.support.clock import FakeClock


async def test_each_batch_waits_as_long_as_the_one_before_it_took_up_to_a_limit() -> None:
    clock = FakeClock()
    pace, began = BatchPace(clock), list[float]()

    for seconds in (0.02, 0.1, 30.0, 0.0, 0.0):
        async with pace.next_batch():
            began.append(clock.monotonic())
            clock.advance(seconds)

    waits = [round(later - earlier, 3) for earlier, later in pairwise(began)]
    assert waits == [0.04, 0.2, 30.0 + BATCH_PAUSE_SECONDS_MAX, 0.0]
