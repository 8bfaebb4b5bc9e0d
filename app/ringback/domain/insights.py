"""Values of the read models: what happened hour by hour, and what is open now.

The janitor counts ends and attempts into hourly rows, so a chart of a month reads some hundred rows, however many calls there
were. Percentiles come from histograms with fixed bounds, which can be added up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from typing import Final

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.call import CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.delivery import DeliveryState

LATENCY_BOUNDS_MS: Final = tuple(round(10 ** (exponent / 5)) for exponent in range(43))
"""Upper bounds of the buckets: five for each power of ten, from 1 ms to about 3 days. A last bucket has what is longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyHistogram:
    """How many durations lie in each bucket. Has one more count than there are bounds."""

    counts: Sequence[int] = (0,) * (len(LATENCY_BOUNDS_MS) + 1)

    @property
    def total(self) -> int:
        return sum(self.counts)

    def percentile_ms(self, share: float) -> int | None:
        """The upper bound of the bucket that holds this share (0.95) of the durations; None without any."""
        if not self.total:
            return None
        wanted = share * self.total
        for bound, seen in zip((*LATENCY_BOUNDS_MS, LATENCY_BOUNDS_MS[-1]), accumulate(self.counts), strict=True):
            if seen >= wanted:
                return bound
        return LATENCY_BOUNDS_MS[-1]

    def __add__(self, other: "LatencyHistogram") -> "LatencyHistogram":
        return LatencyHistogram(counts=tuple(map(sum, zip(self.counts, other.counts, strict=True))))


@dataclass(frozen=True, slots=True, kw_only=True)
class HourInsights:
    """One hour of one principal, or of all."""

    hour: datetime
    """Its beginning, in UTC."""
    calls_by_outcome: Mapping[CallOutcome, int] = field(default_factory=dict[CallOutcome, int])
    """Calls that ended in this hour."""
    calls_started: int = 0
    attempts_by_category: Mapping[AttemptCategory, int] = field(default_factory=dict[AttemptCategory, int])
    deliveries_delivered: int = 0
    deliveries_dead: int = 0
    call_duration: LatencyHistogram = LatencyHistogram()
    """From the creation of a call to its end."""
    delivery_latency: LatencyHistogram = LatencyHistogram()
    """From the creation of a delivery to the receiver's 2xx, of deliveries that were never held."""
    queued_calls_max: int = 0
    """The longest queue of calls that a sample of this hour saw, of all principals."""
    pending_deliveries_max: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class InsightsOverview:
    """What the home page, `ringback top` and GET /v1/insights show."""

    since: datetime
    until: datetime
    hours: Sequence[HourInsights]
    """Oldest first, without gaps. The last one is not over."""
    open_calls: Mapping[CallStatus, int]
    """Now."""
    queued_calls: int
    """Calls that wait for a runner now, counted up to a limit."""
    open_deliveries: Mapping[DeliveryState, int]
    dead_deliveries: int
    """Of the stored ones, counted up to a limit."""
    failing_webhooks: int
