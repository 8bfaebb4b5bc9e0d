"""Retry schedules of deliveries: the pause before each attempt, and the age at which a delivery is given up.

`days` suits back ends that may be down over a weekend. `minutes` is what MCP event subscriptions expect: short, because the
subscriber can poll. An owner may also give a schedule of their own, for example one that ends within a minute to rehearse a
dead letter. Each pause is jittered by ±20 %, so that receivers that failed together are not called together.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ringback.backoff import JITTER_FRACTION, add_jitter

MINUTE: Final = 60
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR


class RetryProfile(StrEnum):
    DAYS = "days"
    MINUTES = "minutes"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySchedule:
    delays_seconds: tuple[float, ...]
    give_up_seconds: float
    """Age in seconds at which a delivery is given up. Pauses count."""


RETRY_SCHEDULES: Final[dict[RetryProfile, RetrySchedule]] = {
    RetryProfile.DAYS: RetrySchedule(
        delays_seconds=(
            5, 30, 2 * MINUTE, 10 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR,
        ),
        give_up_seconds=4 * DAY,
    ),
    RetryProfile.MINUTES: RetrySchedule(delays_seconds=(2, 30, 120, 600), give_up_seconds=HOUR),
}  # fmt: skip

PROGRESS_SCHEDULE: Final = RetrySchedule(delays_seconds=(5,), give_up_seconds=MINUTE)
"""Two attempts: a later progress or the end of the call replaces a late one."""
OWN_STEPS_MAX: Final = 20
"""Steps of an owner's schedule: nearly twice as many as `days` has."""
OWN_STEP_SECONDS_MAX: Final = DAY
"""The longest step of `days`."""
RETRY_PAUSE_SECONDS_MAX: Final = OWN_STEP_SECONDS_MAX * (1 + JITTER_FRACTION)
"""The longest pause before an attempt. A delivery that is due later was planned by a clock that was far ahead."""
OWN_STEPS_SECONDS_MAX: Final = 4 * DAY
"""All steps together: the age at which `days` gives up. Results are kept longer than this (`janitor.config.Retention`)."""
ATTEMPT_ALLOWANCE_SECONDS: Final = 10.0
"""How long one attempt may take (`notifier.http.sender.ATTEMPT_SECONDS`): an own schedule allows it for each attempt."""
BREAKER_PAUSE_SECONDS_MAX: Final = 5 * MINUTE
"""The longest pause of a circuit breaker (`circuit_breaker.OPEN_SECONDS_STEPS`)."""
ORDERED_GIVE_UP_SECONDS: Final = HOUR
"""Ordered deliveries wait behind a failing one. They wait no longer than this, whatever the schedule."""


def own_retry_schedule(steps_seconds: tuple[int, ...]) -> RetrySchedule:
    """The schedule of these steps. It gives up once all attempts fit with the longest jitter, after 4 days at the latest.

    It also leaves time for a breaker's longest pause: otherwise deliveries with short steps would be given up without an
    attempt while the breaker waits, although the receiver works again.
    """
    longest = (sum(steps_seconds) + BREAKER_PAUSE_SECONDS_MAX) * (1 + JITTER_FRACTION)
    longest += ATTEMPT_ALLOWANCE_SECONDS * (len(steps_seconds) + 1)
    return RetrySchedule(delays_seconds=steps_seconds, give_up_seconds=min(longest, OWN_STEPS_SECONDS_MAX))


def retry_delay_seconds(
    schedule: RetrySchedule, *, attempts: int, random_fraction: float, retry_after_seconds: float | None
) -> float | None:
    """Seconds until the next attempt after `attempts` attempts, or None at the end of the schedule.

    `random_fraction` is uniform in [0, 1). A receiver's Retry-After lengthens the pause, up to the longest step of the
    schedule.
    """
    steps = schedule.delays_seconds
    if attempts > len(steps):
        return None
    jittered = add_jitter(steps[attempts - 1], random_fraction)
    if retry_after_seconds is None:
        return jittered
    return max(jittered, min(retry_after_seconds, steps[-1]))
