import base64

import pytest

from ringback.domain.cursor import List, Place, decode, decode_place, encode_place, is_in_log, mark_of
from ringback.domain.errors import InvalidCursor


def test_a_cursor_is_opaque_but_stable_across_releases() -> None:
    """Clients keep cursors; what an earlier release gave out must be understood by later ones."""
    assert encode_place(Place(42)) == "MTpldmVudHM6NDI"
    assert decode_place("MTpldmVudHM6NDI") == Place(42)
    assert encode_place(Place(42, mark_of("evt_01KAGZ8A000000000000000001"))) == "MTpldmVudHM6NDIuMmM4OTJiMWY"


@pytest.mark.parametrize(
    "text",
    ["2:events:1", "1:events", "1:secrets:1", "1", "", ":::", "1:EVENTS:1"],
    ids=["version", "no position", "no such list", "bare", "empty", "colons", "case"],
)
def test_what_is_no_cursor_of_ours_says_so(text: str) -> None:
    cursor = base64.urlsafe_b64encode(text.encode()).decode()
    with pytest.raises(InvalidCursor, match=r"not a cursor of ours\. Start without one\."):
        decode(List.EVENTS, cursor)


@pytest.mark.parametrize(
    "position", ["-1", "1.0", "", "٣", "9" * 19, "0x1", "1.", "1.0000000G", "1.0000000A", "1.00000000 ", ".00000000"]
)
def test_a_place_in_the_log_is_a_plain_number_that_a_store_can_hold(position: str) -> None:
    cursor = base64.urlsafe_b64encode(f"1:events:{position}".encode()).decode()
    with pytest.raises(InvalidCursor, match="names no place"):
        decode_place(cursor)


ID, OTHER = "evt_01KAGZ8A000000000000000001", "evt_01KAGZ8A000000000000000002"


@pytest.mark.parametrize(
    ("place", "event_id", "known"),
    [
        (Place(7, mark_of(ID)), ID, True),
        (Place(7, mark_of(ID)), OTHER, False),
        (Place(7, mark_of(ID)), None, False),
        (Place(5, mark_of(ID)), None, True),
        (Place(11, mark_of(ID)), None, False),
        (Place(11), None, False),
        (Place(10), OTHER, True),
        (Place(0), None, True),
    ],
    ids=["same", "another", "hole", "removed by retention", "ahead", "ahead, unmarked", "unmarked", "beginning"],
)
def test_a_place_is_known_by_the_event_that_stands_there(place: Place, event_id: str | None, *, known: bool) -> None:
    assert is_in_log(place, head=10, horizon=5, event_id=event_id) is known
