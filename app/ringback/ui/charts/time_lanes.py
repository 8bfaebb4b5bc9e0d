"""Drawings of what happened when: lanes with bars and marks along an axis of time. Pure functions; templates write the SVG.

A call runs for seconds, and its callbacks are tried for days. So the axis is not linear: each pause between two instants gets a
width by its logarithm. Everything stays visible, and a longer pause is never drawn shorter.

Each lane is an SVG without a viewBox: x is a percentage of its width, and y are pixels. So lanes fit each screen, and neither
text nor marks shrink with them. Labels are text of the page, beside the lanes or, on narrow screens, above them.
"""

import bisect
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Final

WIDTH: Final = 100.0
"""Of a lane, in percent."""
AXIS_HEIGHT: Final = 22
"""In pixels, as all heights."""
LANE_HEIGHT: Final = 28
BAR_HEIGHT: Final = 15
BAR_WIDTH_MIN: Final = 0.5
LABEL_CHARACTERS: Final = 26
"""Of a webhook's label. The label of a call may be longer, and is then cut by the page."""
TICKS_MAX: Final = 6
NARROW_TICK_DISTANCE: Final = 0.4
"""Between two labels on a narrow screen: two fifths of 250 pixels are wider than `+23 h 59 min`."""
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
    href: str | None
    bars: Sequence[DrawnBar]
    marks: Sequence[DrawnMark]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTick:
    x: float
    since_start: timedelta
    anchor: str
    """start, middle or end: where the label stands."""
    is_narrow: bool
    """Whether a narrow screen has room for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    lanes: Sequence[DrawnLane]
    ticks: Sequence[TimeTick]
    lane_height: int = LANE_HEIGHT
    axis_height: int = AXIS_HEIGHT


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
    return Drawing(lanes=[_draw_lane(lane, scale) for lane in lanes], ticks=_draw_ticks(scale))


def _pause_width(pause: timedelta) -> float:
    return math.log1p(pause.total_seconds() * 1000 / SHORTEST_PAUSE_MS)


def _x(scale: TimeScale, instant: datetime) -> float:
    return round(scale.place(instant) * WIDTH, 2)


def _draw_ticks(scale: TimeScale) -> Sequence[TimeTick]:
    """The ticks of a wide screen. Those of a narrow one are some of them."""
    ticks: list[TimeTick] = []
    last_narrow = 0.0
    for instant in scale.list_ticks():
        place = scale.place(instant)
        is_end = place in {0, 1}
        is_narrow = is_end or min(place - last_narrow, 1 - place) >= NARROW_TICK_DISTANCE
        last_narrow = place if is_narrow else last_narrow
        anchor = "start" if place == 0 else "end" if place == 1 else "middle"
        ticks.append(
            TimeTick(x=_x(scale, instant), since_start=instant - scale.start, anchor=anchor, is_narrow=is_narrow)
        )
    return ticks


def _draw_lane(lane: TimeLane, scale: TimeScale) -> DrawnLane:
    return DrawnLane(
        label=lane.label,
        href=lane.href,
        bars=[_draw_bar(bar, scale) for bar in lane.bars],
        marks=[_draw_mark(mark, scale) for mark in lane.marks],
    )


def _draw_mark(mark: Mark, scale: TimeScale) -> DrawnMark:
    return DrawnMark(
        x=_x(scale, mark.at), y=LANE_HEIGHT / 2, tone=mark.tone, text=mark.text, is_diamond=mark.is_diamond
    )


def _draw_bar(bar: TimeBar, scale: TimeScale) -> DrawnBar:
    x = _x(scale, bar.start)
    height = BAR_HEIGHT / 2 if bar.is_light else BAR_HEIGHT
    return DrawnBar(
        x=x,
        y=(LANE_HEIGHT - height) / 2,
        width=max(round(_x(scale, bar.end) - x, 2), BAR_WIDTH_MIN),
        height=height,
        tone=bar.tone,
        text=bar.text,
    )
