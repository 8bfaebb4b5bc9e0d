"""How long a stream of an upstream may be silent: as long as its own heartbeats say."""

import pytest

from ringback.upstreams.events.stream_silence import SILENCE_SECONDS_MAX, SLACK_SECONDS, StreamSilence

HEARTBEAT = "notifications/events/heartbeat"
EVENT = "notifications/events/event"


def note_heartbeats(silence: StreamSilence, *times: float) -> float:
    for at in times:
        silence.note_frames([EVENT, HEARTBEAT], at=at)
    return silence.allowed_seconds


def test_a_stream_may_be_silent_for_twice_the_interval_of_its_heartbeats() -> None:
    assert note_heartbeats(StreamSilence(), 0.0, 10.0, 20.0, 30.5) == 2 * 10.5 + SLACK_SECONDS


def test_a_stream_with_few_heartbeats_or_slow_ones_has_the_time_of_the_slowest_server() -> None:
    assert note_heartbeats(StreamSilence(), 0.0, 1.0, 2.0) == SILENCE_SECONDS_MAX
    assert note_heartbeats(StreamSilence(), 0.0, 100.0, 200.0, 300.0) == SILENCE_SECONDS_MAX


def test_other_frames_are_no_heartbeats_and_do_not_shorten_the_interval() -> None:
    silence = StreamSilence()
    for at in range(100):
        silence.note_frames([EVENT], at=float(at))
    assert silence.allowed_seconds == SILENCE_SECONDS_MAX


def test_the_next_stream_begins_anew_and_is_waited_for_twice_as_long_after_a_death() -> None:
    silence = StreamSilence()
    before = note_heartbeats(silence, 0.0, 2.0, 4.0, 6.0)
    silence.note_death()
    silence.begin_stream()
    assert silence.allowed_seconds == SILENCE_SECONDS_MAX
    assert note_heartbeats(silence, 0.0, 2.0, 4.0, 6.0) - SLACK_SECONDS == pytest.approx(2 * (before - SLACK_SECONDS))
