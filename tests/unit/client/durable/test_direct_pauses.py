"""How long a direct call pauses between its requests to a server."""

from ringback.backoff import ROUND_BACKOFF
from ringback.client.durable.direct.streams import READ_TIMEOUT, RESUME_BACKOFF


def test_a_stream_is_resumed_after_two_to_ten_seconds() -> None:
    assert [RESUME_BACKOFF.pause_seconds(attempts) for attempts in (1, 2, 3, 4, 1000)] == [2, 4, 8, 10, 10]


def test_a_resumed_stream_is_read_for_five_seconds_to_five_minutes() -> None:
    assert [READ_TIMEOUT.pause_seconds(attempts) for attempts in (1, 2, 6, 7, 1000)] == [5, 10, 160, 300, 300]


def test_a_round_without_questions_is_repeated_after_a_tenth_of_a_second_to_five_seconds() -> None:
    assert [ROUND_BACKOFF.pause_seconds(round_number + 1) for round_number in (1, 2, 6, 7, 100)] == [
        0.1,
        0.2,
        3.2,
        5.0,
        5.0,
    ]
