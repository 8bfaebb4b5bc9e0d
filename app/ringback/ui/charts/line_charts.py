"""One line for each series, with gaps where there is no value; and sparklines, small lines without axes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from ringback.ui.charts.drawing import Chart, Column, LegendItem, Line
from ringback.ui.charts.scales import ValueScale, format_hour, make_hour_ticks, place_hours

SPARKLINE_WIDTH: Final = 112
SPARKLINE_HEIGHT: Final = 24
_SPARKLINE_MARGIN: Final = 2
"""So that the line is not cut at the edges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSeries:
    label: str
    values: Sequence[float | None]
    """One for each hour; None where nothing was measured."""


def draw_lines(
    *,
    caption: str,
    hours: Sequence[datetime],
    series: Sequence[ValueSeries],
    scale: ValueScale,
    format_value: Callable[[float], str],
    summary: str,
    note: str = "",
    empty_text: str = "Nothing was measured in this time.",
) -> Chart:
    edges, width = place_hours(len(hours))
    centres = [round(edge + width / 2, 2) for edge in edges]
    return Chart(
        caption=caption,
        summary=summary,
        note=note,
        empty_text=empty_text,
        lines=[_draw_line(each, centres, scale, style) for style, each in enumerate(series, 1)],
        columns=[
            Column(x=edge, width=round(width, 2), text=_describe_hour(hour, series, number, format_value))
            for number, (edge, hour) in enumerate(zip(edges, hours, strict=True))
        ],
        value_ticks=scale.ticks,
        hour_ticks=make_hour_ticks(hours),
        legend=[LegendItem(label=each.label, style=style) for style, each in enumerate(series, 1)],
        table_head=["Hour (UTC)", *(each.label for each in series)],
        table_rows=[
            [format_hour(hour), *(_format_optional(each.values[number], format_value) for each in series)]
            for number, hour in reversed(list(enumerate(hours)))
            if any(each.values[number] is not None for each in series)
        ],
    )


def split_at_gaps(points: Sequence[tuple[float, float] | None]) -> Sequence[Sequence[tuple[float, float]]]:
    """The runs of points between the gaps."""
    runs: list[list[tuple[float, float]]] = []
    is_open = False
    for point in points:
        if point is None:
            is_open = False
            continue
        if not is_open:
            runs.append([])
            is_open = True
        runs[-1].append(point)
    return runs


def write_points(points: Sequence[tuple[float, float]]) -> str:
    """As the attribute `points` of a polyline."""
    return " ".join(f"{x:g},{y:g}" for x, y in points)


def _draw_line(series: ValueSeries, centres: Sequence[float], scale: ValueScale, style: int) -> Line:
    points = [
        None if value is None else (x, scale.place(value)) for x, value in zip(centres, series.values, strict=True)
    ]
    runs = split_at_gaps(points)
    return Line(
        parts=[write_points(run) for run in runs if len(run) > 1],
        points=[run[0] for run in runs if len(run) == 1],
        style=style,
    )


def _describe_hour(
    hour: datetime, series: Sequence[ValueSeries], number: int, format_value: Callable[[float], str]
) -> str:
    parts = [f"{each.label} {_format_optional(each.values[number], format_value)}" for each in series]
    return f"{format_hour(hour)} UTC: {', '.join(parts)}"


def _format_optional(value: float | None, format_value: Callable[[float], str]) -> str:
    return "none" if value is None else format_value(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """A small line beside a number."""

    points: str
    """Of a polyline; empty for fewer than two values."""
    summary: str


def draw_sparkline(values: Sequence[float], *, summary: str) -> Sparkline:
    """From 0 to the largest value."""
    if len(values) < 2:  # noqa: PLR2004 - a line has two ends
        return Sparkline(points="", summary=summary)
    highest = max(*values, 1e-9)
    step = (SPARKLINE_WIDTH - 2 * _SPARKLINE_MARGIN) / (len(values) - 1)
    height = SPARKLINE_HEIGHT - 2 * _SPARKLINE_MARGIN
    points = [
        (round(_SPARKLINE_MARGIN + number * step, 2), round(_SPARKLINE_MARGIN + height * (1 - value / highest), 2))
        for number, value in enumerate(values)
    ]
    return Sparkline(points=write_points(points), summary=summary)
