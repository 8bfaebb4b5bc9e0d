"""What this process has counted and measured since its start, for its metrics. A scrape reads it from memory.

    attempts            POSTs of callbacks, by category              counted when the attempt is committed
    ended_deliveries    deliveries that ended, by state
    ended_calls         calls that ended, by upstream and outcome
    call_seconds        from the creation of a call to its end, the time in the queue included
    delivery_seconds    from an event to the 2xx response of its receiver
    write_seconds       from a unit of work to its commit

The labels are few: members of enumerations, and names of configured upstreams. No label names a principal, a webhook or a URL.
One event loop uses the values, so they need no locks.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from itertools import accumulate
from typing import Final, NamedTuple

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.call import Call
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.delivery import DeliveryKind, DeliveryState, DeliveryUpdate

OTHER_UPSTREAM: Final = "(other)"
"""The label of calls whose upstream is not configured here. Clients choose the names in reports, so they are no labels."""
CALL_BOUNDS_SECONDS: Final = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 1_800.0, 7_200.0, 28_800.0, 86_400.0)
"""From a tool that returns at once to one that runs for a day."""
DELIVERY_BOUNDS_SECONDS: Final = (0.005, 0.02, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1_800.0, 7_200.0, 86_400.0)
"""A healthy receiver has its callback within 20 ms (the p99 that the design promises); the rest follows the retries."""
WRITE_BOUNDS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
"""Around the fsync of a usual disk: 1 to 10 ms."""
_SAMPLED: Final = 1
"""The flag of a `traceparent` whose trace is recorded (W3C Trace Context §3.2.2.5)."""


class Exemplar(NamedTuple):
    """One observation of a bucket, and the trace that shows what it was."""

    trace_id: str
    span_id: str
    seconds: float
    observed_at: datetime


class Histogram:
    """Observed seconds in buckets. `bounds` are the inclusive upper bounds of all buckets but the last."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds: Final = tuple(bounds)
        self.sum_seconds = 0.0
        self._counts = [0] * (len(bounds) + 1)
        self.exemplars: Final[list[Exemplar | None]] = [None] * (len(bounds) + 1)
        """For each bucket the latest observation with a sampled trace."""

    def observe(self, seconds: float) -> None:
        self._counts[bisect_left(self.bounds, seconds)] += 1
        self.sum_seconds += seconds

    def observe_traced(self, seconds: float, traceparent: str | None, observed_at: datetime) -> None:
        """As `observe`; if the trace was sampled, it becomes the bucket's exemplar. `traceparent` is valid or None."""
        self.observe(seconds)
        if traceparent is not None and int(traceparent[53:], 16) & _SAMPLED:
            trace_id, span_id = traceparent[3:35], traceparent[36:52]
            self.exemplars[bisect_left(self.bounds, seconds)] = Exemplar(trace_id, span_id, seconds, observed_at)

    def cumulative_counts(self) -> Sequence[int]:
        """For each bound, the observations up to it; then all observations."""
        return list(accumulate(self._counts))


class Measurements:
    def __init__(self) -> None:
        self.attempts = Counter[AttemptCategory]()
        self.ended_deliveries = Counter[DeliveryState]()
        self.ended_calls = Counter[tuple[str, CallOutcome]]()
        self.call_seconds = Histogram(CALL_BOUNDS_SECONDS)
        self.delivery_seconds = Histogram(DELIVERY_BOUNDS_SECONDS)
        self.write_seconds = Histogram(WRITE_BOUNDS_SECONDS)
        self.is_configured: Callable[[str], bool] = lambda _: False
        """Whether an upstream of this name is configured here. Set once the upstreams are known."""

    def record_end(self, call: Call) -> None:
        """Count a call that has ended."""
        if call.outcome is None or call.finished_at is None:
            return
        upstream = call.upstream if self.is_configured(call.upstream) else OTHER_UPSTREAM
        self.ended_calls[upstream, call.outcome] += 1
        started_at = call.not_before or call.created_at
        seconds = max(0.0, (call.finished_at - started_at).total_seconds())
        self.call_seconds.observe_traced(seconds, call.traceparent, call.finished_at)

    def record_attempt(self, category: AttemptCategory, update: DeliveryUpdate) -> None:
        """Count an attempt and, if its delivery has ended with it, the delivery."""
        self.attempts[category] += 1
        if update.finished_at is None:
            return
        delivery = update.delivery
        self.ended_deliveries[update.state] += 1
        if update.state is DeliveryState.DELIVERED and delivery.kind is DeliveryKind.EVENT and delivery.generation == 1:
            seconds = max(0.0, (update.finished_at - delivery.created_at).total_seconds())
            self.delivery_seconds.observe_traced(seconds, delivery.traceparent, update.finished_at)

    def record_given_up(self, count: int) -> None:
        """Count deliveries that were given up without a last attempt."""
        self.ended_deliveries[DeliveryState.DEAD] += count
