"""Cursors come back whole from their own list, and from nowhere else."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.cursor import CURSOR_LENGTH_MAX, List, Place, decode, decode_place, encode, encode_place
from ringback.domain.errors import InvalidCursor

lists = st.sampled_from(List)
positions = st.text(st.characters(codec="utf-8"), max_size=40)
places = st.builds(Place, st.integers(0, 10**18 - 1), st.none() | st.from_regex(r"[0-9a-f]{8}", fullmatch=True))


@given(listing=lists, position=positions)
def test_a_cursor_gives_back_its_position(listing: List, position: str) -> None:
    assert decode(listing, encode(listing, position)) == position


@given(place=places)
def test_a_place_in_the_log_comes_back(place: Place) -> None:
    assert decode_place(encode_place(place)) == place


@given(listing=lists, other=lists, position=positions)
def test_a_cursor_of_another_list_is_never_accepted(listing: List, other: List, position: str) -> None:
    if listing is not other:
        with pytest.raises(InvalidCursor, match=f"list of {other}, not of {listing}"):
            decode(listing, encode(other, position))


@given(listing=lists, position=positions, cut=st.integers(1, 8))
def test_a_cursor_is_safe_in_a_url_and_within_its_bound(listing: List, position: str, cut: int) -> None:
    cursor = encode(listing, position)
    assert cursor.isascii()
    assert cursor.replace("-", "").replace("_", "").isalnum()
    with pytest.raises(InvalidCursor):
        decode(listing, cursor + "A" * (CURSOR_LENGTH_MAX - len(cursor) + cut))


@given(listing=lists, text=st.text() | st.binary().map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_any_text_is_one_of_ours_or_refused_by_name(listing: List, text: str) -> None:
    try:
        position = decode(listing, text)
    except InvalidCursor:
        return
    assert decode(listing, encode(listing, position)) == position


@given(position=positions)
def test_only_a_number_is_a_place_in_the_log(position: str) -> None:
    cursor = encode(List.EVENTS, position)
    try:
        place = decode_place(cursor)
    except InvalidCursor:
        return
    assert int(position.partition(".")[0]) == place.seq
    assert 0 <= place.seq < 2**63
