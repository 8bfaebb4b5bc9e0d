"""The notifications of a flooding child: what is dropped, and that no event of a stream is lost in silence."""

import json
from typing import Any

import pytest

from ringback.upstreams.events.event_frames import EventFrames
from ringback.upstreams.transports.notification_buffer import (
    BUFFERED_NOTIFICATIONS_MAX,
    FRAMES_LOST_METHOD,
    NOTIFICATION_LIMIT,
    NotificationBuffer,
)

STREAM_ID = "ringback-events-7"
OTHER_STREAM_ID = "ringback-events-8"
_STREAM_KEY = "io.modelcontextprotocol/subscriptionId"


def make_frame(number: int, *, stream_id: str = STREAM_ID, data: Any = None) -> bytes:
    params = {"eventId": f"e{number}", "data": data, "_meta": {_STREAM_KEY: stream_id}}
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/events/event", "params": params}).encode()


def make_log_line(number: int) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": number}}).encode()


@pytest.fixture
def buffer() -> NotificationBuffer:
    """A buffer whose rate limit is used up, and whose clock stands still."""
    buffer = NotificationBuffer(now=lambda: 0.0)
    for number in range(int(NOTIFICATION_LIMIT.burst)):
        assert not buffer.buffer_if_limited(make_log_line(number))
    return buffer


def read_messages(buffer: NotificationBuffer) -> list[dict[str, Any]]:
    return [json.loads(line) for line in buffer.pop_all()]


def find_lost_streams(messages: list[dict[str, Any]]) -> list[str]:
    return [each["params"]["_meta"][_STREAM_KEY] for each in messages if each["method"] == FRAMES_LOST_METHOD]


def test_events_that_fit_are_all_kept_in_their_order(buffer: NotificationBuffer) -> None:
    for number in range(BUFFERED_NOTIFICATIONS_MAX):
        assert buffer.buffer_if_limited(make_frame(number))

    messages = read_messages(buffer)

    assert [each["params"]["eventId"] for each in messages] == [f"e{number}" for number in range(len(messages))]
    assert len(messages) == BUFFERED_NOTIFICATIONS_MAX


def test_a_marker_precedes_the_events_after_a_dropped_one(buffer: NotificationBuffer) -> None:
    for number in range(BUFFERED_NOTIFICATIONS_MAX + 3):
        buffer.buffer_if_limited(make_frame(number))

    messages = read_messages(buffer)

    assert find_lost_streams(messages[:1]) == [STREAM_ID]
    assert messages[1]["params"]["eventId"] == "e3"
    assert buffer.dropped_count == 3


def test_log_messages_that_push_an_event_out_leave_its_marker(buffer: NotificationBuffer) -> None:
    buffer.buffer_if_limited(make_frame(1))
    for number in range(BUFFERED_NOTIFICATIONS_MAX):
        buffer.buffer_if_limited(make_log_line(number))

    assert find_lost_streams(read_messages(buffer)) == [STREAM_ID]


def test_a_marker_is_due_at_once(buffer: NotificationBuffer) -> None:
    for number in range(BUFFERED_NOTIFICATIONS_MAX + 1):
        buffer.buffer_if_limited(make_frame(number))

    assert buffer.wait_seconds() == 0.0
    assert find_lost_streams([json.loads(line) for line in buffer.pop_due()]) == [STREAM_ID]
    assert buffer.wait_seconds() != 0.0


def test_data_that_looks_like_another_stream_does_not_hide_the_stream_of_a_dropped_event(
    buffer: NotificationBuffer,
) -> None:
    buffer.buffer_if_limited(make_frame(1, data={_STREAM_KEY: OTHER_STREAM_ID}))
    for number in range(BUFFERED_NOTIFICATIONS_MAX):
        buffer.buffer_if_limited(make_log_line(number))

    assert sorted(find_lost_streams(read_messages(buffer))) == [STREAM_ID, OTHER_STREAM_ID]


async def test_a_marker_ends_its_stream_after_the_frames_before_it() -> None:
    frames = EventFrames()
    frames.put_notification("notifications/events/event", {"eventId": "e1"})
    frames.put_notification(FRAMES_LOST_METHOD, {})
    frames.put_notification("notifications/events/event", {"eventId": "e9"})

    assert await frames.next_frames(limit=10) == [("notifications/events/event", {"eventId": "e1"})]
    assert await frames.next_frames(limit=10) == []
    assert frames.has_overflowed
