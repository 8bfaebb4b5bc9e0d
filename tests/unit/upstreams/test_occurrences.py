"""What a hostile upstream sends about its events is bounded, checked and read as data."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain.event_types import DATA_LEVELS_MAX, arguments_topic, upstream_event_id
from ringback.protocol.errors import InvalidUpstreamResponse
from ringback.upstreams.events.occurrences import (
    CURSOR_LENGTH_MAX,
    EVENT_DATA_BYTES_MAX,
    POLL_SECONDS_MAX,
    POLL_SECONDS_MIN,
    FollowedEvents,
    read_occurrence,
    read_poll_result,
)

FOLLOWED = FollowedEvents("github", "pr.opened", '{"repo":"a"}')
GOOD: dict[str, Any] = {
    "eventId": "e1",
    "name": "pr.opened",
    "timestamp": "2026-11-20T18:00:00+01:00",
    "data": {"n": 1},
}


def nest(levels: int) -> dict[str, Any]:
    """An object with this many levels."""
    value: Any = {}
    for _ in range(levels - 1):
        value = {"inner": value}
    return value


def test_data_that_a_client_could_not_read_within_a_page_is_dropped() -> None:
    assert read_occurrence(FOLLOWED, GOOD | {"data": nest(DATA_LEVELS_MAX)}) is not None
    assert read_occurrence(FOLLOWED, GOOD | {"data": nest(DATA_LEVELS_MAX + 1)}) is None


def test_an_event_is_named_after_its_upstream_and_has_the_topic_of_its_arguments() -> None:
    event = read_occurrence(FOLLOWED, GOOD | {"type": "terminated", "extra": 1})

    assert event is not None
    assert (event.name, event.id, event.upstream) == ("github/pr.opened", "github:e1", "github")
    assert event.topic == arguments_topic('{"repo":"a"}')
    assert event.data == {"n": 1}
    assert event.occurred_at is not None
    assert event.occurred_at.isoformat() == "2026-11-20T17:00:00+00:00"


@pytest.mark.parametrize(
    "wrong",
    [
        {"eventId": None},
        {"eventId": ""},
        {"eventId": 7},
        {"eventId": "x" * 5000},
        {"name": "call.finished"},
        {"name": "github/pr.opened"},
        {"data": []},
        {"data": None},
        {"data": {"text": "x" * EVENT_DATA_BYTES_MAX}},
        {"data": {"number": 10**300}},
        {"data": {"text": "\ud800"}},
    ],
)
def test_a_malformed_a_foreign_or_a_huge_event_is_left_out(wrong: dict[str, Any]) -> None:
    page = read_poll_result(FOLLOWED, {"events": [GOOD, GOOD | wrong, "no event", None], "cursor": "1"})

    assert [event.id for event in page.events] == ["github:e1"]
    assert page.dropped == 3


@pytest.mark.parametrize("timestamp", [None, 7, "yesterday", "2026-11-20T17:00:00", "0001-01-01T00:00:00+14:00"])
def test_an_event_without_a_usable_time_happened_when_it_arrived(timestamp: Any) -> None:
    event = read_occurrence(FOLLOWED, GOOD | {"timestamp": timestamp})

    assert event is not None
    assert event.occurred_at is None


@pytest.mark.parametrize("cursor", [None, 7, "x" * (CURSOR_LENGTH_MAX + 1), "a\0b"])
def test_a_cursor_that_cannot_be_stored_is_none(cursor: Any) -> None:
    assert read_poll_result(FOLLOWED, {"events": [], "cursor": cursor}).cursor is None


@pytest.mark.parametrize("interval", [0, -1, 10**9, math.inf, math.nan, "soon", True, None])
def test_the_pause_between_polls_is_bounded_whatever_the_upstream_asks(interval: Any) -> None:
    page = read_poll_result(FOLLOWED, {"events": [], "nextPollMs": interval})

    assert POLL_SECONDS_MIN <= page.next_poll_seconds <= POLL_SECONDS_MAX


def test_a_result_without_a_list_of_events_is_an_invalid_response() -> None:
    with pytest.raises(InvalidUpstreamResponse):
        read_poll_result(FOLLOWED, {"events": {"0": GOOD}})


@given(own_id=st.text(min_size=1))
def test_an_id_is_always_fit_for_a_header_and_never_looks_like_one_of_ringbacks(own_id: str) -> None:
    event_id = upstream_event_id("github", own_id)

    assert event_id.isascii()
    assert event_id.isprintable()
    assert " " not in event_id
    assert event_id.startswith("github:")
    assert len(event_id) <= 160


@given(ids=st.lists(st.text(min_size=1), unique=True, min_size=2, max_size=5))
def test_different_ids_of_an_upstream_stay_different(ids: list[str]) -> None:
    assert len({upstream_event_id("github", each) for each in ids}) == len(ids)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(result=st.dictionaries(st.sampled_from(["events", "cursor", "hasMore", "nextPollMs", "truncated"]), values))
def test_any_result_is_read_or_refused_as_a_whole(result: dict[str, Any]) -> None:
    try:
        page = read_poll_result(FOLLOWED, result)
    except InvalidUpstreamResponse:
        return
    assert all(event.name == "github/pr.opened" for event in page.events)
