"""Axes with round labels."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ringback.ui.charts.drawing import LEFT, PLOT_HEIGHT, PLOT_WIDTH, TOP, Tick

_DAY_HOURS: Final = 24
_STEPS_MAX: Final = 4
"""Labels on the vertical axis besides the lowest one."""
_SHORT_RANGE_HOURS: Final = 48
"""Up to here the labels are hours, from here on days."""
_HOUR_LABELS_MAX: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueScale:
    """Maps a value to a y coordinate."""

    low: float
    high: float
    ticks: Sequence[Tick]
    is_logarithmic: bool = False

    def place(self, value: float) -> float:
        """The y coordinate. A value outside of the scale is placed at its end."""
        return _place(value, self.low, self.high, is_logarithmic=self.is_logarithmic)


def make_count_scale(maximum: float, *, label: Callable[[float], str]) -> ValueScale:
    """From 0 to a round number (1, 2 or 5 and zeros) above the maximum, in at most four whole steps."""
    step = _round_up(max(maximum, 1) / _STEPS_MAX)
    steps = max(1, math.ceil(maximum / step))
    return make_linear_scale(step * steps, steps=steps, label=label)


def make_linear_scale(high: float, *, steps: int, label: Callable[[float], str]) -> ValueScale:
    values = [high * number / steps for number in range(steps + 1)]
    ticks = [Tick(position=_place(value, 0, high, is_logarithmic=False), label=label(value)) for value in values]
    return ValueScale(low=0, high=high, ticks=ticks)


def make_logarithmic_scale(low: float, high: float, *, label: Callable[[float], str]) -> ValueScale:
    """Between powers of ten around both values, which are at least 1. The lowest value is above the axis if it can be."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    first = max(0, first - (10.0**first >= low))  # log10 rounds: that of 999,999,999,999,999 is 15
    last = max(last + (10.0**last < high), first + 1)
    values = [10.0**exponent for exponent in range(first, last + 1)]
    ticks = [
        Tick(position=_place(value, values[0], values[-1], is_logarithmic=True), label=label(value)) for value in values
    ]
    return ValueScale(low=values[0], high=values[-1], ticks=ticks, is_logarithmic=True)


def place_hours(count: int) -> tuple[Sequence[float], float]:
    """The left edges of so many columns, and the width of one."""
    width = PLOT_WIDTH / max(1, count)
    return [round(LEFT + number * width, 2) for number in range(count)], width


def make_hour_ticks(hours: Sequence[datetime]) -> Sequence[Tick]:
    """Labels at hours such as 06:00, or for longer ranges at midnights. All in UTC."""
    edges, _ = place_hours(len(hours))
    utc_hours = [hour.astimezone(UTC) for hour in hours]
    if len(hours) <= _SHORT_RANGE_HOURS:
        every = next(size for size in (1, 2, 3, 4, 6, 12) if len(hours) / size <= _HOUR_LABELS_MAX)
        return [
            Tick(position=edge, label=f"{hour:%H:%M}")
            for edge, hour in zip(edges, utc_hours, strict=True)
            if hour.hour % every == 0
        ]
    days = math.ceil(len(hours) / _DAY_HOURS / _HOUR_LABELS_MAX)
    return [
        Tick(position=edge, label=f"{hour.day} {hour:%b}")
        for edge, hour in zip(edges, utc_hours, strict=True)
        if hour.hour == 0 and hour.toordinal() % days == 0
    ]


def format_hour(hour: datetime) -> str:
    """One hour as a row of a table names it: `2026-11-23 06:00`."""
    return f"{hour.astimezone(UTC):%Y-%m-%d %H:00}"


def _place(value: float, low: float, high: float, *, is_logarithmic: bool) -> float:
    if is_logarithmic:
        value, low, high = math.log10(max(value, low)), math.log10(low), math.log10(high)
    share = min(1.0, max(0.0, (value - low) / (high - low)))
    return round(TOP + PLOT_HEIGHT * (1 - share), 2)


def _round_up(value: float) -> float:
    """The smallest of 1, 2, 5, 10, 20, 50 … that is not below the value."""
    power = 10.0 ** math.floor(math.log10(max(value, 1)))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value - 1e-9)
