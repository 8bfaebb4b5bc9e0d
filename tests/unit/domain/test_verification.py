"""How long a challenge waits for the limit on challenges."""

import pytest

from ringback.domain.clock import seconds
from ringback.domain.verification import CHALLENGE_WINDOW_SECONDS, RecentChallenges, seconds_until_below_limit
from tests.support.clock import START


@pytest.mark.parametrize(
    ("sent_ago", "wait"),
    [
        (10.0, CHALLENGE_WINDOW_SECONDS - 10),
        (CHALLENGE_WINDOW_SECONDS, 1.0),
        (-40 * 86_400.0, CHALLENGE_WINDOW_SECONDS),  # sent by a clock that was far ahead
    ],
)
def test_a_challenge_waits_for_the_oldest_one_and_no_longer_than_the_window(sent_ago: float, wait: float) -> None:
    recent = RecentChallenges(sent_count=30, waiting_count=0, first_sent_at=START - seconds(sent_ago))

    assert seconds_until_below_limit(recent, 30, now=START) == wait
