"""Values of the read models: what happened hour by hour, what is open now, and client sessions.

The janitor counts starts, ends and attempts into hourly rows, so a chart of a month reads some hundred rows, however many calls
there were. Percentiles come from histograms with fixed bounds, which can be added up.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Final, TypeVar

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.call import CallStatus
from ringback.domain.call_outcome import CallOutcome
from ringback.domain.delivery import DeliveryState
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal

T = TypeVar("T")

HOUR: Final = timedelta(hours=1)
OVERVIEW_HOURS_MAX: Final = 90 * 24
"""How long hourly rows are kept: a quarter of a year."""
LATENCY_BOUNDS_MS: Final = tuple(round(10 ** (exponent / 5)) for exponent in range(47))
"""Upper bounds of the buckets: five for each power of ten, from 1 ms to about 18 days, which is longer than finished deliveries
are kept by default. A last bucket has what is longer."""


def latency_bucket(milliseconds: int) -> int:
    """The bucket of a duration. A negative one, which two clocks can make, is in the first."""
    return bisect_left(LATENCY_BOUNDS_MS, milliseconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyHistogram:
    """How many durations lie in each bucket. Has one more count than there are bounds."""

    counts: Sequence[int] = (0,) * (len(LATENCY_BOUNDS_MS) + 1)

    @property
    def total(self) -> int:
        return sum(self.counts)

    def percentile_ms(self, share: float) -> int | None:
        """The upper bound of the bucket that holds this share (0.95) of the durations; None without any.

        The last bucket has none: it gives the last bound, so a larger duration is given as 18 days.
        """
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
    """From the last start of a call at its upstream to its end. Calls that were never sent have none."""
    delivery_latency: LatencyHistogram = LatencyHistogram()
    """From the creation of a delivery to the receiver's 2xx, the time on hold included."""
    queued_calls_max: int = 0
    """The longest queue of calls that a sample of this hour saw, of all principals. 0 for a caller that sees one principal."""
    pending_deliveries_max: int = 0
    """The same for deliveries that wait for an attempt."""

    @property
    def calls_ended(self) -> int:
        return sum(self.calls_by_outcome.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamInsights:
    """The calls to one upstream in the hours of an overview, of its last day at most."""

    upstream: str
    calls_started: int
    calls_by_outcome: Mapping[CallOutcome, int]
    call_duration: LatencyHistogram


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWork:
    """What is open now, of one principal or of all. Each count but `open_calls` ends at `OPEN_COUNTED_MAX`."""

    open_calls: Mapping[CallStatus, int]
    queued_calls: int
    """Calls that wait for a runner."""
    scheduled_calls: int
    """Calls that start later."""
    open_deliveries: Mapping[DeliveryState, int]
    """Held, pending and leased ones. For one principal: those of its registered webhooks and of its newest other ones."""
    dead_deliveries: int
    """Those that were not sent again, among the newest `OPEN_COUNTED_MAX` dead ones that are stored."""
    failing_webhooks: int
    """Webhooks whose last attempt or challenge failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InsightsOverview(OpenWork):
    """What the home page, `ringback top` and GET /v1/insights show."""

    since: datetime
    until: datetime
    is_complete: bool
    """False while the service still counts: the hours and upstreams lack some of what happened last."""
    hours: Sequence[HourInsights]
    """Oldest first, without gaps. The last one is not over."""
    upstreams: Sequence[UpstreamInsights]
    """Those with calls, the slowest first by the 95th percentile of its calls' durations."""
    paused_upstreams: Sequence[str] = ()
    """Those that an operator has paused, by name: their calls wait."""


# -- client sessions --


LISTED_CALLS_COUNTED_MAX: Final = 500
"""Calls of each session in a list that are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSession:
    """A client's inference session, as its calls show it."""

    client_session_id: str
    principal: Principal
    first_call_at: datetime
    last_call_at: datetime
    """When its newest call was created."""
    last_call_id: CallId
    calls: int
    """Counted up to `LISTED_CALLS_COUNTED_MAX`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCounts:
    """The calls of one session. The newest ones are counted up to a limit."""

    first_call_at: datetime
    last_call_at: datetime
    calls: int
    is_complete: bool
    """False if the session has more calls than are counted."""
    calls_by_status: Mapping[CallStatus, int]
    calls_by_outcome: Mapping[CallOutcome, int]
    resumed_calls: int
    """Calls for which a client came back."""
    answered_calls: int
    """Other calls that ended while their client waited for them."""


# -- hourly rows --

CountedLabel = str
"""What is counted: one of the names below, or a name, a colon and an outcome, a category or the number of a bucket."""
STARTED: Final = "started"
DELIVERED: Final = "delivered"
DEAD: Final = "dead"
OUTCOME: Final = "outcome"
CATEGORY: Final = "category"
DURATION: Final = "duration"
LATENCY: Final = "latency"
QUEUED_MAX: Final = "queued_max"
PENDING_MAX: Final = "pending_max"
MAXIMA: Final = frozenset({QUEUED_MAX, PENDING_MAX})
"""Labels whose numbers are not added up: the larger one counts."""


def hour_of(instant: datetime) -> datetime:
    """The beginning of the hour."""
    return instant.replace(minute=0, second=0, microsecond=0)


def merge_counts(counts: Counter[CountedLabel], more: Mapping[CountedLabel, int]) -> None:
    """Add the numbers of an hour to others of the same hour."""
    for label, number in more.items():
        counts[label] = max(counts[label], number) if label in MAXIMA else counts[label] + number


def describe_hour(hour: datetime, counts: Mapping[CountedLabel, int]) -> HourInsights:
    """The hour of these counts. Labels that a newer version wrote are left out."""
    if not counts:
        return HourInsights(hour=hour)
    groups = _group_by_name(counts)
    return HourInsights(
        hour=hour,
        calls_by_outcome=_members_of(groups, OUTCOME, _OUTCOMES),
        calls_started=counts.get(STARTED, 0),
        attempts_by_category=_members_of(groups, CATEGORY, _CATEGORIES),
        deliveries_delivered=counts.get(DELIVERED, 0),
        deliveries_dead=counts.get(DEAD, 0),
        call_duration=_histogram_of(groups, DURATION),
        delivery_latency=_histogram_of(groups, LATENCY),
        queued_calls_max=counts.get(QUEUED_MAX, 0),
        pending_deliveries_max=counts.get(PENDING_MAX, 0),
    )


def describe_upstream(upstream: str, counts: Mapping[CountedLabel, int]) -> UpstreamInsights:
    groups = _group_by_name(counts)
    return UpstreamInsights(
        upstream=upstream,
        calls_started=counts.get(STARTED, 0),
        calls_by_outcome=_members_of(groups, OUTCOME, _OUTCOMES),
        call_duration=_histogram_of(groups, DURATION),
    )


_Groups = Mapping[str, Mapping[str, int]]
"""By the name in a label: the numbers by what follows the colon."""
_OUTCOMES: Final = {str(outcome): outcome for outcome in CallOutcome}
_CATEGORIES: Final = {str(category): category for category in AttemptCategory}
_BUCKETS: Final = {str(bucket): bucket for bucket in range(len(LATENCY_BOUNDS_MS) + 1)}
_NO_DURATIONS: Final = LatencyHistogram()


def _group_by_name(counts: Mapping[CountedLabel, int]) -> _Groups:
    groups: dict[str, dict[str, int]] = {}
    for label, number in counts.items():
        name, _, value = label.partition(":")
        groups.setdefault(name, {})[value] = number
    return groups


def _members_of(groups: _Groups, name: str, members: Mapping[str, T]) -> dict[T, int]:
    return {members[value]: number for value, number in groups.get(name, {}).items() if value in members}


def _histogram_of(groups: _Groups, name: str) -> LatencyHistogram:
    found = _members_of(groups, name, _BUCKETS)
    if not found:
        return _NO_DURATIONS
    counts = [0] * len(_BUCKETS)
    for bucket, number in found.items():
        counts[bucket] = number
    return LatencyHistogram(counts=counts)
