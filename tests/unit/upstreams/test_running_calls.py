"""What runs on a connection: it keeps a silent child alive until its deadline."""

from contextlib import nullcontext

import pytest

from ringback.domain.liveness import UNRESPONSIVE_AFTER_SECONDS, Liveness, LivenessSample, classify_liveness
from ringback.upstreams.running_calls import RunningCalls
from tests.support.clock import FakeClock
from tests.support.examples import CALL


@pytest.mark.parametrize(
    ("runs", "verdict"),
    [("call", Liveness.UNRESPONSIVE), ("request", Liveness.UNRESPONSIVE), (None, Liveness.FROZEN)],
)
def test_a_child_that_works_on_a_call_or_a_forwarded_request_is_not_replaced_as_frozen(
    runs: str | None, verdict: Liveness
) -> None:
    """A server that reads a resource on its event loop answers no ping meanwhile; after 30 s it was killed."""
    clock = FakeClock()
    running = RunningCalls(clock)
    tracked = {"call": running.track_call(CALL), "request": running.track_request(60)}.get(runs or "", nullcontext())
    with tracked:
        sent_at = clock.monotonic()
        clock.advance(UNRESPONSIVE_AFTER_SECONDS)
        sample = LivenessSample(
            now=clock.monotonic(), ping_unanswered_since=sent_at, deadlines=running.list_deadlines()
        )
        assert classify_liveness(sample) is verdict
        assert len(running) == (runs == "call")

    assert running.list_deadlines() == []
