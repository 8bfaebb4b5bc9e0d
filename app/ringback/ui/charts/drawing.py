"""What the template draws. Coordinates are pixels of a drawing that the page scales as a whole; y grows downwards."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

WIDTH: Final = 720
HEIGHT: Final = 200
LEFT: Final = 52
"""Room for the labels of the vertical axis."""
RIGHT: Final = 8
TOP: Final = 10
BOTTOM: Final = 24
"""Room for the labels of the hours."""
PLOT_WIDTH: Final = WIDTH - LEFT - RIGHT
PLOT_HEIGHT: Final = HEIGHT - TOP - BOTTOM
SERIES_MAX: Final = 7
"""The style sheet has a colour, and the template a pattern and a dash, for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A label on an axis, and where it is on that axis."""

    position: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    x: float
    y: float
    width: float
    height: float
    style: int
    """The number of its series, from 1: colour and pattern."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One series. It has several parts if values are missing between them."""

    parts: Sequence[str]
    """Each part as points of a polyline: `x,y x,y`."""
    points: Sequence[tuple[float, float]]
    """Values without a neighbour, which no line shows."""
    style: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The area of one hour, and what a browser shows when one points at it."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LegendItem:
    label: str
    style: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    caption: str
    """What is drawn: the thing, its unit, and the period of one value."""
    summary: str
    """The drawing in one sentence, for those who do not see it."""
    note: str = ""
    """How to read the numbers."""
    bars: Sequence[Bar] = ()
    lines: Sequence[Line] = ()
    columns: Sequence[Column] = ()
    value_ticks: Sequence[Tick] = ()
    hour_ticks: Sequence[Tick] = ()
    legend: Sequence[LegendItem] = ()
    table_head: Sequence[str] = ()
    table_rows: Sequence[Sequence[str]] = ()
    """Newest first, without hours that have no value."""

    @property
    def is_empty(self) -> bool:
        return not self.table_rows
