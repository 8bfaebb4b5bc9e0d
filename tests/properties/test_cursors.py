"""Cursors come back whole from their own list, and from nowhere else."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.cursor import (
    CURSOR_LENGTH_MAX,
    CursorList,
    LogPosition,
    decode_cursor,
    decode_log_position,
    encode_cursor,
    encode_log_position,
)
from ringback.domain.errors import InvalidCursor

lists = st.sampled_from(CursorList)
positions = st.text(st.characters(codec="utf-8"), max_size=40)
log_positions = st.builds(
    LogPosition, st.integers(0, 10**18 - 1), st.none() | st.from_regex(r"[0-9a-f]{8}", fullmatch=True)
)


@given(listing=lists, position=positions)
def test_a_cursor_gives_back_its_position(listing: CursorList, position: str) -> None:
    assert decode_cursor(listing, encode_cursor(listing, position)) == position


@given(place=log_positions)
def test_a_place_in_the_log_comes_back(place: LogPosition) -> None:
    assert decode_log_position(encode_log_position(place)) == place


@given(listing=lists, other=lists, position=positions)
def test_a_cursor_of_another_list_is_never_accepted(listing: CursorList, other: CursorList, position: str) -> None:
    if listing is not other:
        with pytest.raises(InvalidCursor, match=f"list of {other}, not of {listing}"):
            decode_cursor(listing, encode_cursor(other, position))


@given(listing=lists, position=positions, cut=st.integers(1, 8))
def test_a_cursor_is_safe_in_a_url_and_within_its_bound(listing: CursorList, position: str, cut: int) -> None:
    cursor = encode_cursor(listing, position)
    assert cursor.isascii()
    assert cursor.replace("-", "").replace("_", "").isalnum()
    with pytest.raises(InvalidCursor):
        decode_cursor(listing, cursor + "A" * (CURSOR_LENGTH_MAX - len(cursor) + cut))


@given(listing=lists, text=st.text() | st.binary().map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_any_text_is_one_of_ours_or_refused_by_name(listing: CursorList, text: str) -> None:
    try:
        position = decode_cursor(listing, text)
    except InvalidCursor:
        return
    assert decode_cursor(listing, encode_cursor(listing, position)) == position


@given(position=positions)
def test_only_a_number_is_a_place_in_the_log(position: str) -> None:
    cursor = encode_cursor(CursorList.EVENTS, position)
    try:
        place = decode_log_position(cursor)
    except InvalidCursor:
        return
    assert int(position.partition(".")[0]) == place.seq
    assert 0 <= place.seq < 2**63
