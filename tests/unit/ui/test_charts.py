"""Charts: numbers become coordinates, labels and tables."""

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.ui.charts.drawing import HEIGHT, HOUR_LABEL_WIDTH, LEFT, PLOT_HEIGHT, PLOT_WIDTH, TOP, WIDTH
from ringback.ui.charts.line_charts import SPARKLINE_HEIGHT, SPARKLINE_WIDTH, ValueSeries, draw_lines, draw_sparkline
from ringback.ui.charts.scales import make_count_scale, make_hour_ticks, make_logarithmic_scale
from ringback.ui.charts.stacked_bars import CountSeries, draw_stacked_bars

FIRST_HOUR = datetime(2026, 11, 23, 6, tzinfo=UTC)
COUNTS = st.integers(0, 10**9)


def list_hours(count: int) -> list[datetime]:
    return [FIRST_HOUR + timedelta(hours=number) for number in range(count)]


@given(rows=st.lists(st.tuples(COUNTS, COUNTS, COUNTS), min_size=1, max_size=200))
def test_bars_lie_inside_the_plot_and_their_heights_are_in_proportion(rows: list[tuple[int, int, int]]) -> None:
    series = [CountSeries(label=f"s{place}", counts=[row[place] for row in rows]) for place in range(3)]

    chart = draw_stacked_bars(caption="c", hours=list_hours(len(rows)), series=series, summary="s")

    for bar in chart.bars:
        assert LEFT <= bar.x <= bar.x + bar.width <= LEFT + PLOT_WIDTH + 0.1
        assert TOP <= bar.y <= bar.y + bar.height <= TOP + PLOT_HEIGHT + 0.1
    drawn = sum(bar.height for bar in chart.bars)
    total = sum(map(sum, rows))
    highest = max(map(sum, rows))
    if total:
        tallest = max(sum(bar.height for bar in chart.bars if bar.x == x) for x in {bar.x for bar in chart.bars})
        assert drawn / total == pytest.approx(tallest / highest, rel=0.02, abs=0.2 / highest)
        assert tallest >= PLOT_HEIGHT * 0.49, "the scale ends near the largest bar"


def test_the_table_has_the_numbers_newest_first_without_hours_that_have_none() -> None:
    series = [CountSeries(label="result", counts=[1200, 0, 3]), CountSeries(label="tool error", counts=[1, 0, 0])]

    chart = draw_stacked_bars(caption="c", hours=list_hours(3), series=series, summary="s")

    assert chart.table_head == ["Hour (UTC)", "result", "tool error"]
    assert chart.table_rows == [["2026-11-23 08:00", "3", "0"], ["2026-11-23 06:00", "1,200", "1"]]
    assert [column.text for column in chart.columns] == [
        "2026-11-23 06:00 UTC: 1,200 result, 1 tool error",
        "2026-11-23 07:00 UTC: none",
        "2026-11-23 08:00 UTC: 3 result",
    ]


@given(maximum=st.integers(0, 10**12))
def test_an_axis_of_counts_has_few_round_labels_up_to_the_maximum(maximum: int) -> None:
    scale = make_count_scale(maximum, label=str)

    labels = [float(tick.label) for tick in scale.ticks]
    assert labels[0] == 0
    assert labels[-2] < max(maximum, 1) <= labels[-1]
    assert len(labels) <= 5
    assert all(label == int(label) for label in labels)
    assert [tick.position for tick in scale.ticks] == sorted((tick.position for tick in scale.ticks), reverse=True)


@given(low=st.integers(1, 10**9), ratio=st.integers(1, 10**6))
def test_a_logarithmic_axis_includes_both_ends(low: int, ratio: int) -> None:
    scale = make_logarithmic_scale(low, low * ratio, label=str)

    assert scale.low <= low <= low * ratio <= scale.high * 1.0001
    assert TOP <= scale.place(low * ratio) <= scale.place(low) <= TOP + PLOT_HEIGHT


@pytest.mark.parametrize("count", [0, 1, 24, 48, 49, 168, 720, 2160])
def test_hours_have_labels_that_do_not_touch(count: int) -> None:
    ticks = make_hour_ticks(list_hours(count))

    positions = [tick.position for tick in ticks]
    assert all(later - earlier >= 45 for earlier, later in pairwise(positions))
    assert len(ticks) >= min(1, count)


@pytest.mark.parametrize("count", [24, 48, 168])
def test_labels_of_hours_are_inside_the_plot_which_scrolls_without_the_labels_of_values(count: int) -> None:
    midnight = FIRST_HOUR.replace(hour=0)
    ticks = make_hour_ticks([midnight + timedelta(hours=later) for later in range(count)])

    middles = [tick.label_x for tick in ticks]
    assert middles[0] - HOUR_LABEL_WIDTH / 2 >= LEFT
    assert all(later - earlier >= HOUR_LABEL_WIDTH for earlier, later in pairwise(middles))


@pytest.mark.parametrize("count", [24, 48, 168])
def test_the_label_of_the_last_hour_is_inside_the_drawing_also_at_midnight(count: int) -> None:
    midnight = FIRST_HOUR.replace(hour=0)
    ticks = make_hour_ticks([midnight - timedelta(hours=back) for back in reversed(range(count))])

    middles = [tick.label_x for tick in ticks]
    assert ticks[-1].label in {"00:00", "23 Nov"}
    assert middles[-1] + HOUR_LABEL_WIDTH / 2 <= WIDTH
    assert all(later - earlier >= HOUR_LABEL_WIDTH for earlier, later in pairwise(middles))


def test_labels_of_hours_are_in_utc() -> None:
    berlin = [hour.astimezone(timezone(timedelta(hours=1))) for hour in list_hours(3)]

    assert [tick.label for tick in make_hour_ticks(berlin)] == ["06:00", "07:00", "08:00"]


def test_a_line_has_gaps_where_nothing_was_measured_and_a_point_for_a_single_value() -> None:
    values = [None, 1.0, 2.0, None, 5.0, None]

    chart = draw_lines(
        caption="c",
        hours=list_hours(6),
        series=[ValueSeries(label="p50", values=values)],
        scale=make_count_scale(5, label=str),
        format_value="{:g} ms".format,
        summary="s",
    )

    (line,) = chart.lines
    assert [len(part.split()) for part in line.parts] == [2]
    assert len(line.points) == 1
    assert chart.table_rows == [
        ["2026-11-23 10:00", "5 ms"],
        ["2026-11-23 08:00", "2 ms"],
        ["2026-11-23 07:00", "1 ms"],
    ]
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in line.points)


@given(values=st.lists(st.integers(0, 10**6), max_size=200))
def test_a_sparkline_stays_inside_of_its_box(values: list[int]) -> None:
    points = [tuple(map(float, point.split(","))) for point in draw_sparkline(values, summary="s").points.split()]

    assert len(points) == (len(values) if len(values) > 1 else 0)
    assert all(0 < x < SPARKLINE_WIDTH and 0 < y < SPARKLINE_HEIGHT for x, y in points)
