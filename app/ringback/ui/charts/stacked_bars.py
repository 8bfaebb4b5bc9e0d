"""One bar for each hour, with a part for each series."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate
from typing import Final

from ringback.ui.charts.drawing import Bar, Chart, Column, LegendItem
from ringback.ui.charts.scales import ValueScale, format_hour, make_count_scale, make_hour_ticks, place_hours

_GAP_SHARE: Final = 0.15
"""Of the width of an hour: the space between two bars."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountSeries:
    label: str
    counts: Sequence[int]
    """One for each hour."""


def draw_stacked_bars(
    *, caption: str, hours: Sequence[datetime], series: Sequence[CountSeries], summary: str, note: str = ""
) -> Chart:
    """The first series is lowest. A series of zeros is in the legend, so the legend of a chart is always the same."""
    totals = [sum(counts) for counts in zip(*(each.counts for each in series), strict=True)]
    scale = make_count_scale(max(totals, default=0), label=_format_count)
    edges, width = place_hours(len(hours))
    return Chart(
        caption=caption,
        summary=summary,
        note=note,
        bars=[bar for number in range(len(hours)) for bar in _stack(series, number, edges[number], width, scale)],
        columns=[
            Column(x=edge, width=round(width, 2), text=_describe_hour(hour, series, number))
            for number, (edge, hour) in enumerate(zip(edges, hours, strict=True))
        ],
        value_ticks=scale.ticks,
        hour_ticks=make_hour_ticks(hours),
        legend=[LegendItem(label=each.label, style=number) for number, each in enumerate(series, 1)],
        table_head=["Hour (UTC)", *(each.label for each in series)],
        table_rows=[
            [format_hour(hour), *(_format_count(each.counts[number]) for each in series)]
            for number, hour in reversed(list(enumerate(hours)))
            if totals[number]
        ],
    )


def _stack(series: Sequence[CountSeries], number: int, edge: float, width: float, scale: ValueScale) -> Sequence[Bar]:
    """The parts of one hour, upwards from 0."""
    counts = [each.counts[number] for each in series]
    tops = [scale.place(total) for total in accumulate(counts)]
    bottoms = [scale.place(0), *tops]
    return [
        Bar(
            x=round(edge + width * _GAP_SHARE / 2, 2),
            y=top,
            width=round(width * (1 - _GAP_SHARE), 2),
            height=round(bottom - top, 2),
            style=style,
        )
        for style, (count, top, bottom) in enumerate(zip(counts, tops, bottoms, strict=False), 1)
        if count
    ]


def _describe_hour(hour: datetime, series: Sequence[CountSeries], number: int) -> str:
    parts = [f"{_format_count(each.counts[number])} {each.label}" for each in series if each.counts[number]]
    return f"{format_hour(hour)} UTC: {', '.join(parts) or 'none'}"


def _format_count(count: float) -> str:
    return f"{round(count):,}"
