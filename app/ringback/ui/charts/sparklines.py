"""A small line without axes, beside a number."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ringback.ui.charts.line_charts import write_points

SPARKLINE_WIDTH: Final = 112
SPARKLINE_HEIGHT: Final = 24
_MARGIN: Final = 2
"""So that the line is not cut at the edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    points: str
    """Of a polyline; empty for fewer than two values."""
    summary: str


def draw_sparkline(values: Sequence[float], *, summary: str) -> Sparkline:
    """From 0 to the largest value."""
    if len(values) < 2:  # noqa: PLR2004 - a line has two ends
        return Sparkline(points="", summary=summary)
    highest = max(*values, 1e-9)
    step = (SPARKLINE_WIDTH - 2 * _MARGIN) / (len(values) - 1)
    room = SPARKLINE_HEIGHT - 2 * _MARGIN
    points = [
        (round(_MARGIN + number * step, 2), round(_MARGIN + room * (1 - value / highest), 2))
        for number, value in enumerate(values)
    ]
    return Sparkline(points=write_points(points), summary=summary)
