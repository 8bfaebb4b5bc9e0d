"""How many callbacks a second each origin gets outside outages. After an outage, its backlog is sent at a multiple of that."""

import math
from dataclasses import dataclass
from typing import Final

WINDOW_SECONDS: Final = 10.0
"""A rate is counted over this period: two callbacks in one millisecond are no rate."""
DECAY: Final = 0.99
"""Of the highest rate with each further window that has callbacks: half of an old peak is left after eleven minutes.
Nights and outages have no such windows, so the last rate is kept through them."""
TRACKED_ORIGINS_MAX: Final = 10_000
"""Some 2 MB. The origin whose last window is the oldest is dropped; its rate is then unknown, as after a restart."""


@dataclass(slots=True)
class _OriginRate:
    window_began_at: float
    count: int = 0
    highest_per_second: float = 0.0
    """Of the earlier windows, each with its decay."""
    last_success_at: float = -math.inf


class OriginRates:
    """The instants are seconds since 1970 on the store's clock, which the caller hands in."""

    def __init__(self) -> None:
        self._rates: dict[str, _OriginRate] = {}

    def __len__(self) -> int:
        return len(self._rates)

    def count_callbacks(self, origin: str, now: float, count: int = 1) -> None:
        """Count what is sent or created now."""
        rate = self._rates.get(origin)
        if rate is None or not 0 <= now - rate.window_began_at < WINDOW_SECONDS:
            rate = self._begin_window(origin, now)
        rate.count += count

    def uncount_callbacks(self, origin: str, count: int) -> None:
        """Subtract callbacks that were counted and then not sent."""
        if (rate := self._rates.get(origin)) is not None:
            rate.count = max(0, rate.count - count)

    def note_success(self, origin: str, now: float) -> None:
        if (rate := self._rates.get(origin)) is not None:
            rate.last_success_at = now

    def get_highest(self, origin: str) -> float:
        """The highest rate of its recent windows, in callbacks a second; 0 if it is not known."""
        rate = self._rates.get(origin)
        return 0.0 if rate is None else max(rate.highest_per_second, rate.count / WINDOW_SECONDS)

    def get_last_success(self, origin: str) -> float:
        """When this process last delivered there; minus infinity if that is not known."""
        rate = self._rates.get(origin)
        return -math.inf if rate is None else rate.last_success_at

    def _begin_window(self, origin: str, now: float) -> _OriginRate:
        rate = self._rates.pop(origin, None) or _OriginRate(now)
        rate.highest_per_second = max(rate.highest_per_second * DECAY, rate.count / WINDOW_SECONDS)
        rate.window_began_at, rate.count = now, 0
        self._rates[origin] = rate  # the last that is dropped
        if len(self._rates) > TRACKED_ORIGINS_MAX:
            del self._rates[next(iter(self._rates))]
        return rate
