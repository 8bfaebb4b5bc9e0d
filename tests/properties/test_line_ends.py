"""Lines of server-sent events end with LF, CRLF or CR, wherever the chunks are cut."""

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ringback.upstreams.transports.line_splitter import LineEnds, LineSplitter

TEXTS = st.lists(st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"data: 1"]), max_size=30).map(b"".join)


@given(TEXTS, st.lists(st.integers(0, 200), max_size=20))
def test_any_cut_of_any_mix_of_line_ends_gives_the_lines_of_the_specification(text: bytes, cuts: list[int]) -> None:
    ends, splitter = LineEnds(), LineSplitter(1000)
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]

    chunks = [text[start:end] for start, end in pairwise(borders)]
    lines = [line for chunk in chunks for line in splitter.feed(ends.replace(chunk))]

    assert lines == re.split(rb"\r\n|\r|\n", text)[:-1]
