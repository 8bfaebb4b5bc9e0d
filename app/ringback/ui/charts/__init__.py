"""Charts as values: coordinates, labels and tables that the template `charts.html` writes as SVG.

Pure functions from numbers to drawings. Nothing here knows Jinja or HTML, so no text is markup before the template escapes it.

    drawing       what the template draws: bars, lines, ticks, a legend, and the same numbers as a table
    scales        linear and logarithmic axes with round labels, and the labels of hours
    stacked_bars  one bar for each hour, a part of it for each series
    line_charts   one line for each series, with gaps where there is no value; a small line without axes
    home_charts   the charts and sums of the first page
    timelines     the timeline of one call
    session_charts  the calls of one client session
    time_lanes    lanes along an axis of time, for both of these
"""
