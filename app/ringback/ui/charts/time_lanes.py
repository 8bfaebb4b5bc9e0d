"""Drawings of what happened when: lanes with bars and marks along an axis of time. Pure functions; templates write the SVG.

A call runs for seconds, and its callbacks are tried for days. So the axis is not linear: each pause between two instants gets a
width by its logarithm. Everything stays visible, and a longer pause is never drawn shorter.
"""

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

WIDTH: Final = 1000
"""Of the whole drawing, in units of the SVG."""
LABEL_WIDTH: Final = 235
RIGHT_MARGIN: Final = 16
AXIS_HEIGHT: Final = 24
LANE_HEIGHT: Final = 26
BAR_HEIGHT: Final = 14
BAR_WIDTH_MIN: Final = 3.0
LABEL_CHARACTERS: Final = 26
"""A bold character is 9 units wide at most, but for a few capitals."""
TICKS_MAX: Final = 6
SHORTEST_PAUSE_MS: Final = 50.0
"""Shorter pauses are drawn in proportion to their length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBar:
    start: datetime
    end: datetime
    tone: str
    """good, warn, bad, busy or quiet."""
    text: str
    is_light: bool = False
    """Whether it is drawn thin, because marks on it matter more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    at: datetime
    tone: str
    text: str
    is_diamond: bool = False
    """Whether it is drawn as a diamond, and not as a dot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLane:
    label: str
    bars: Sequence[TimeBar] = ()
    marks: Sequence[Mark] = ()
    href: str | None = None
    """A path below the dashboard's."""

    @property
    def instants(self) -> Sequence[datetime]:
        """Every instant that the lane shows."""
        ends = [instant for bar in self.bars for instant in (bar.start, bar.end)]
        return [*ends, *(mark.at for mark in self.marks)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnBar:
    x: float
    y: float
    width: float
    height: float
    tone: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnMark:
    x: float
    y: float
    tone: str
    text: str
    is_diamond: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnLane:
    label: str
    full_label: str
    y: float
    """Of the baseline of its label."""
    href: str | None
    bars: Sequence[DrawnBar]
    marks: Sequence[DrawnMark]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTick:
    x: float
    since_start: timedelta
    anchor: str
    """start, middle or end: where the label stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    height: int
    axis_y: int
    lanes: Sequence[DrawnLane]
    ticks: Sequence[TimeTick]
    width: int = WIDTH
    left: int = LABEL_WIDTH
    right: int = WIDTH - RIGHT_MARGIN


class TimeScale:
    """Places of instants between 0 and 1. At least one instant."""

    def __init__(self, instants: Iterable[datetime]) -> None:
        self._instants = sorted(set(instants))
        widths = [_pause_width(after - before) for before, after in pairwise(self._instants)]
        total = math.fsum(widths) or 1.0
        places = [0.0]
        for width in widths:
            places.append(places[-1] + width / total)
        # The sum of floats may miss 1 by a little, in either direction.
        self._places = [*places[:-1], 1.0] if widths else places

    @property
    def start(self) -> datetime:
        return self._instants[0]

    def place(self, instant: datetime) -> float:
        index = bisect.bisect_left(self._instants, instant)
        if index == 0:
            return 0.0
        if index == len(self._instants):
            return 1.0
        before, after = self._instants[index - 1], self._instants[index]
        share = (instant - before) / (after - before)
        return self._places[index - 1] + share * (self._places[index] - self._places[index - 1])

    def list_ticks(self) -> Sequence[datetime]:
        """Some instants with room for a label between them; the first and the last are among them."""
        chosen = [self._instants[0]]
        for instant in self._instants[1:-1]:
            far_from_last = self.place(instant) - self.place(chosen[-1]) >= 1 / TICKS_MAX
            if far_from_last and 1 - self.place(instant) >= 1 / TICKS_MAX:
                chosen.append(instant)
        return chosen if len(self._instants) == 1 else [*chosen, self._instants[-1]]


def draw_lanes(lanes: Sequence[TimeLane], scale: TimeScale) -> Drawing:
    axis_y = len(lanes) * LANE_HEIGHT + 4
    return Drawing(
        height=axis_y + AXIS_HEIGHT,
        axis_y=axis_y,
        lanes=[_draw_lane(lane, scale, top=index * LANE_HEIGHT + 2) for index, lane in enumerate(lanes)],
        ticks=[_draw_tick(instant, scale) for instant in scale.list_ticks()],
    )


def _pause_width(pause: timedelta) -> float:
    return math.log1p(pause.total_seconds() * 1000 / SHORTEST_PAUSE_MS)


def _x(scale: TimeScale, instant: datetime) -> float:
    return round(LABEL_WIDTH + scale.place(instant) * (WIDTH - LABEL_WIDTH - RIGHT_MARGIN), 1)


def _draw_tick(instant: datetime, scale: TimeScale) -> TimeTick:
    place = scale.place(instant)
    anchor = "start" if place == 0 else "end" if place == 1 else "middle"
    return TimeTick(x=_x(scale, instant), since_start=instant - scale.start, anchor=anchor)


def _draw_lane(lane: TimeLane, scale: TimeScale, *, top: float) -> DrawnLane:
    is_cut = len(lane.label) > LABEL_CHARACTERS
    return DrawnLane(
        label=f"{lane.label[: LABEL_CHARACTERS - 1]}…" if is_cut else lane.label,
        full_label=lane.label,
        y=top + LANE_HEIGHT / 2 + 3,
        href=lane.href,
        bars=[_draw_bar(bar, scale, top=top) for bar in lane.bars],
        marks=[_draw_mark(mark, scale, top=top) for mark in lane.marks],
    )


def _draw_mark(mark: Mark, scale: TimeScale, *, top: float) -> DrawnMark:
    y = top + LANE_HEIGHT / 2 - 1
    return DrawnMark(x=_x(scale, mark.at), y=y, tone=mark.tone, text=mark.text, is_diamond=mark.is_diamond)


def _draw_bar(bar: TimeBar, scale: TimeScale, *, top: float) -> DrawnBar:
    x = _x(scale, bar.start)
    height = BAR_HEIGHT / 2 if bar.is_light else BAR_HEIGHT
    return DrawnBar(
        x=x,
        y=top + (LANE_HEIGHT - height) / 2 - 1,
        width=max(round(_x(scale, bar.end) - x, 1), BAR_WIDTH_MIN),
        height=height,
        tone=bar.tone,
        text=bar.text,
    )
