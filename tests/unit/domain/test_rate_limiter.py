from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain import rate_limiter
from ringback.domain.rate_limiter import RateLimit, RateLimiter, TokenBucket

FOUR_PER_SECOND = RateLimit(per_second=4, burst=4)
START = 1_795_000_000.0
"""Seconds since 1970, where floats are coarse."""


def test_a_full_bucket_allows_a_burst_and_refills_evenly() -> None:
    bucket = TokenBucket(FOUR_PER_SECOND)

    for left in (4, 3, 2, 1):
        assert bucket.available_permits(START) == left
        bucket.consume_permit(START)

    assert [bucket.available_permits(START + after) for after in (0, 0.249, 0.25, 0.5, 1, 1000)] == [0, 0, 1, 2, 4, 4]


def test_several_permits_are_acquired_together_or_not_at_all() -> None:
    bucket = TokenBucket(FOUR_PER_SECOND)

    assert bucket.try_acquire(START, 3)
    assert not bucket.try_acquire(START, 2)
    assert bucket.wait_seconds(START, 2) == pytest.approx(0.25)
    assert bucket.available_permits(START) == 1
    assert bucket.try_acquire(START + 0.25, 2)
    assert bucket.try_acquire(START + 0.25, 0)


@given(
    per_second=st.floats(0.1, 1000),
    burst=st.integers(1, 1000),
    pauses=st.lists(st.floats(0, 20), min_size=1, max_size=100),
)
def test_the_wait_is_as_long_as_it_takes_until_a_permit_is_available(
    per_second: float, burst: int, pauses: list[float]
) -> None:
    bucket, now = TokenBucket(RateLimit(per_second=per_second, burst=burst)), START
    for pause in pauses:
        now += pause
        assert (bucket.wait_seconds(now) == 0) == (bucket.available_permits(now) > 0)
        now += bucket.wait_seconds(now)
        assert bucket.try_acquire(now)


def test_a_reserved_permit_is_waited_for() -> None:
    bucket = TokenBucket(RateLimit(per_second=2, burst=1))

    assert [bucket.reserve(100.0) for _ in range(3)] == [0.0, 0.5, 1.0]


def test_a_refunded_permit_is_available_again() -> None:
    limiter: RateLimiter[str] = RateLimiter()
    bucket = limiter.get_bucket("key", FOUR_PER_SECOND, now=START)
    bucket.consume_permit(START)

    limiter.refund_permit("key")
    limiter.refund_permit("unknown")

    assert bucket.available_permits(START) == 4


def test_only_full_buckets_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "TRACKED_KEYS_MAX", 2)
    limiter: RateLimiter[str] = RateLimiter()
    limiter.get_bucket("full", FOUR_PER_SECOND, now=START)
    limiter.get_bucket("used", FOUR_PER_SECOND, now=START).consume_permit(START)

    limiter.get_bucket("new", FOUR_PER_SECOND, now=START)

    assert len(limiter) == 2
    assert limiter.get_bucket("used", FOUR_PER_SECOND, now=START).available_permits(START) == 3


def test_a_new_limit_applies_to_the_bucket_that_exists() -> None:
    limiter: RateLimiter[str] = RateLimiter()
    limiter.get_bucket("key", FOUR_PER_SECOND, now=START)

    bucket = limiter.get_bucket("key", RateLimit(per_second=1, burst=1), now=START)

    assert bucket.available_permits(START) == 1


def test_buckets_in_use_are_swept_again_only_after_their_number_has_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "TRACKED_KEYS_MAX", 2)
    limiter = RateLimiter[int]()
    sweeps: list[int] = []

    class Counted(dict[int, TokenBucket]):
        def items(self) -> Any:
            sweeps.append(len(self))
            return super().items()

    for key in range(16):
        limiter._buckets = Counted(limiter._buckets)  # pyright: ignore[reportPrivateUsage]
        assert limiter.get_bucket(key, RateLimit(per_second=0.01, burst=1), now=0.0).try_acquire(0.0)

    assert sweeps == [2, 4, 8]
