"""What the template draws. Coordinates are pixels of a drawing that the page scales as a whole; y grows downwards."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

WIDTH: Final = 720
HEIGHT: Final = 220
LEFT: Final = 64
"""Where the plot begins; left of it are the labels of the vertical axis."""
RIGHT: Final = WIDTH - 6
TOP: Final = 10
BOTTOM: Final = HEIGHT - 28
"""Where the plot ends; below it are the labels of the hours."""
HOUR_LABEL_WIDTH: Final = 50
"""At most, at the size of the stylesheet: `23 Nov`, `06:00`."""
PLOT_WIDTH: Final = RIGHT - LEFT
PLOT_HEIGHT: Final = BOTTOM - TOP


class Plot(NamedTuple):
    """The edges of the plot in a drawing, and the size of the drawing."""

    left: int = LEFT
    right: int = RIGHT
    top: int = TOP
    bottom: int = BOTTOM
    height: int = PLOT_HEIGHT
    svg_width: int = WIDTH
    svg_height: int = HEIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A label on an axis, and where it is on that axis."""

    position: float
    label: str

    @property
    def label_x(self) -> float:
        """The middle of the label on the horizontal axis. At both ends it moves into the plot, which scrolls alone."""
        return max(LEFT + HOUR_LABEL_WIDTH / 2, min(self.position, WIDTH - HOUR_LABEL_WIDTH / 2))


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
    """Values between two missing ones, which no line shows."""
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
    """What is drawn: its name, its unit, and the period of one value."""
    summary: str
    """The drawing in one sentence, for those who do not see it."""
    note: str = ""
    """How to read the numbers."""
    empty_text: str = "Nothing was counted in this time."
    """What is shown instead of a drawing without a value."""
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

    @property
    def plot(self) -> Plot:
        return Plot()
