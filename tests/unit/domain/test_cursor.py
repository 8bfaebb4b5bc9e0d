import base64

import pytest

from ringback.domain.cursor import List, decode, decode_seq, encode_seq
from ringback.domain.errors import InvalidCursor


def test_a_cursor_is_opaque_but_stable_across_releases() -> None:
    """Clients keep cursors; what an earlier release gave out must be understood by later ones."""
    assert encode_seq(42) == "MTpldmVudHM6NDI"
    assert decode_seq("MTpldmVudHM6NDI") == 42


@pytest.mark.parametrize(
    "text",
    ["2:events:1", "1:events", "1:secrets:1", "1", "", ":::", "1:EVENTS:1"],
    ids=["version", "no position", "no such list", "bare", "empty", "colons", "case"],
)
def test_what_is_no_cursor_of_ours_says_so(text: str) -> None:
    cursor = base64.urlsafe_b64encode(text.encode()).decode()
    with pytest.raises(InvalidCursor, match=r"not a cursor of ours\. Start without one\."):
        decode(List.EVENTS, cursor)


@pytest.mark.parametrize("position", ["-1", "1.0", "", "٣", "9" * 19, "0x1"])
def test_a_place_in_the_log_is_a_plain_number_that_a_store_can_hold(position: str) -> None:
    cursor = base64.urlsafe_b64encode(f"1:events:{position}".encode()).decode()
    with pytest.raises(InvalidCursor, match="names no place"):
        decode_seq(cursor)
