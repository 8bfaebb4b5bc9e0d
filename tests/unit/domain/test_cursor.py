import base64

import pytest

from ringback.domain.cursor import (
    CursorList,
    EventTime,
    LogPosition,
    RedeliveryPosition,
    decode_cursor,
    decode_event_time,
    decode_log_position,
    decode_redelivery_position,
    encode_cursor,
    encode_event_time,
    encode_log_position,
    encode_redelivery_position,
    event_mark,
    is_position_in_log,
)
from ringback.domain.errors import InvalidCursor
from ringback.domain.principal import PRINCIPAL_LENGTH_MAX


def test_a_cursor_is_opaque_but_stable_across_releases() -> None:
    """Clients keep cursors; what an earlier release gave out must be understood by later ones."""
    assert encode_log_position(LogPosition(42)) == "MTpldmVudHM6NDI"
    assert decode_log_position("MTpldmVudHM6NDI") == LogPosition(42)
    assert (
        encode_log_position(LogPosition(42, event_mark("evt_01KAGZ8A000000000000000001")))
        == "MTpldmVudHM6NDIuMmM4OTJiMWY"
    )


@pytest.mark.parametrize(
    "text",
    ["2:events:1", "1:events", "1:secrets:1", "1", "", ":::", "1:EVENTS:1"],
    ids=["version", "no position", "no such list", "bare", "empty", "colons", "case"],
)
def test_an_invalid_cursor_is_refused_with_a_reason(text: str) -> None:
    cursor = base64.urlsafe_b64encode(text.encode()).decode()
    with pytest.raises(InvalidCursor, match=r"not a cursor of ours\. Start without one\."):
        decode_cursor(CursorList.EVENTS, cursor)


@pytest.mark.parametrize(
    "position", ["-1", "1.0", "", "٣", "9" * 19, "0x1", "1.", "1.0000000G", "1.0000000A", "1.00000000 ", ".00000000"]
)
def test_a_place_in_the_log_is_a_plain_number_that_a_store_can_hold(position: str) -> None:
    cursor = base64.urlsafe_b64encode(f"1:events:{position}".encode()).decode()
    with pytest.raises(InvalidCursor, match="names no place"):
        decode_log_position(cursor)


@pytest.mark.parametrize(
    "position",
    [
        "dlv_01KAGZ8A000000000000000001",
        "1.",
        ".dlv_01KAGZ8A000000000000000001",
        "-1.dlv_1",
        "1.evt_1",
        "253402300800000.dlv_01KAGZ8A000000000000000001",  # the year 10000
    ],
)
def test_a_place_in_a_bulk_redelivery_is_the_time_of_its_first_request_and_a_delivery(position: str) -> None:
    place = RedeliveryPosition(1_795_000_000_000, "dlv_01KAGZ8A000000000000000001")
    assert decode_redelivery_position(encode_redelivery_position(place)) == place

    with pytest.raises(InvalidCursor, match="names no place"):
        decode_redelivery_position(encode_cursor(CursorList.REDELIVERIES, position))


@pytest.mark.parametrize("position", ["1.-1.alice", "1.2", ".2.alice", f"{'9' * 16}.2.alice", "1.2.a\0", "1.evt_1"])
def test_a_place_among_the_events_of_all_principals_is_a_time_and_a_place_in_a_log(position: str) -> None:
    for principal in ("alice", "oidc:issuer.example#a.b", "", "a\nb", "😀" * PRINCIPAL_LENGTH_MAX):
        place = EventTime(1_795_000_000_000, principal, 10**18 - 1)
        assert decode_event_time(encode_event_time(place)) == place

    with pytest.raises(InvalidCursor, match="names no place"):
        decode_event_time(encode_cursor(CursorList.LATEST_EVENTS, position))


def test_a_place_of_an_earlier_release_leads_to_no_later_millisecond_and_skips_no_event_of_its_own() -> None:
    cursor = encode_cursor(CursorList.LATEST_EVENTS, "1795000000000.evt_01KAGZ8A000000000000000001")

    assert decode_event_time(cursor) == EventTime(1_795_000_000_001, "", 0)


ID, OTHER = "evt_01KAGZ8A000000000000000001", "evt_01KAGZ8A000000000000000002"


@pytest.mark.parametrize(
    ("place", "event_id", "known"),
    [
        (LogPosition(7, event_mark(ID)), ID, True),
        (LogPosition(7, event_mark(ID)), OTHER, False),
        (LogPosition(7, event_mark(ID)), None, False),
        (LogPosition(5, event_mark(ID)), None, True),
        (LogPosition(11, event_mark(ID)), None, False),
        (LogPosition(11), None, False),
        (LogPosition(10), OTHER, True),
        (LogPosition(0), None, True),
    ],
    ids=["same", "another", "hole", "removed by retention", "ahead", "ahead, unmarked", "unmarked", "beginning"],
)
def test_a_place_is_known_by_the_event_that_stands_there(
    place: LogPosition, event_id: str | None, *, known: bool
) -> None:
    assert is_position_in_log(place, head=10, retention_floor=5, event_id=event_id) is known
