"""The rate of starts: a burst of one minute's starts, then an even refill."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringback.domain import rate_limiter
from ringback.domain.errors import QuotaExceeded
from ringback.domain.ids import KeyId
from ringback.domain.principal import Principal
from ringback.services.limits.quotas import KeyLimits, QuotaEnforcer, QuotaOverrides, Quotas
from tests.support.clock import FakeClock
from tests.support.examples import ALICE, BOB


def make_quota_keeper(clock: FakeClock, **limits: int) -> QuotaEnforcer:
    return QuotaEnforcer(Quotas(**limits), clock=clock)


def test_a_refused_start_says_when_the_next_one_is_taken() -> None:
    clock = FakeClock()
    kept = make_quota_keeper(clock, starts_per_minute=6)
    for _ in range(6):
        kept.acquire_start(ALICE)

    with pytest.raises(QuotaExceeded) as caught:
        kept.acquire_start(ALICE)

    assert caught.value.retry_after_seconds == 10
    clock.advance(10)
    kept.acquire_start(ALICE)
    kept.acquire_start(BOB)


@given(pauses=st.lists(st.floats(0, 90), max_size=200))
def test_a_minute_accepts_at_most_twice_the_rate_and_a_patient_caller_always_succeeds(pauses: list[float]) -> None:
    clock = FakeClock()
    kept = make_quota_keeper(clock, starts_per_minute=5)
    taken: list[float] = []
    for pause in pauses:
        clock.advance(pause)
        try:
            kept.acquire_start(ALICE)
        except QuotaExceeded as refusal:
            clock.advance(refusal.retry_after_seconds)
            kept.acquire_start(ALICE)
        taken.append(clock.monotonic())

    for moment in taken:
        assert sum(moment <= each < moment + 60 for each in taken) <= 10


def test_idle_principals_are_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_limiter, "TRACKED_KEYS_MAX", 3)
    clock = FakeClock()
    kept = make_quota_keeper(clock, starts_per_minute=1)
    for number in range(3):
        kept.acquire_start(Principal(f"quiet-{number}"))
    clock.advance(61)
    kept.acquire_start(ALICE)

    assert kept.rate_limiter_count == 1
    with pytest.raises(QuotaExceeded):
        kept.acquire_start(ALICE)


def test_a_stream_counts_until_it_is_closed_however_it_ends() -> None:
    kept = make_quota_keeper(FakeClock(), streams=1)
    with kept.open_stream(ALICE):
        with pytest.raises(QuotaExceeded), kept.open_stream(ALICE):
            pass
        with kept.open_stream(BOB):
            assert kept.open_stream_count == 2
        with suppress(ZeroDivisionError), kept.open_stream(BOB):
            raise ZeroDivisionError
        assert kept.open_stream_count == 1

    assert kept.open_stream_count == 0


def test_a_principal_has_one_bulk_request_at_a_time_and_the_next_one_may_follow_an_error() -> None:
    kept = make_quota_keeper(FakeClock())
    with suppress(ZeroDivisionError), kept.open_bulk_request(ALICE):
        with pytest.raises(QuotaExceeded, match="Another bulk request of yours"), kept.open_bulk_request(ALICE):
            pass
        with kept.open_bulk_request(BOB):
            pass
        raise ZeroDivisionError

    with kept.open_bulk_request(ALICE):
        pass


KEY, OTHER_KEY = KeyId("key_01KAGZ7Q00F2G4H6J8K1M3N5P7"), KeyId("key_01KAGZ9Q00G3H5J7K9M2N4P6Q8")


def test_a_principal_with_quotas_of_its_own_leaves_the_others_the_defaults() -> None:
    overrides = QuotaOverrides(principals={BOB: Quotas(starts_per_minute=1)})
    kept = QuotaEnforcer(Quotas(starts_per_minute=2), clock=FakeClock(), overrides=overrides)
    for principal, starts in ((ALICE, 2), (BOB, 1)):
        for _ in range(starts):
            kept.acquire_start(principal)

        with pytest.raises(QuotaExceeded) as caught:
            kept.acquire_start(principal)

        assert (caught.value.extra["quota"], caught.value.extra["limit"]) == ("starts_per_minute", starts)


def test_a_start_that_the_key_may_not_make_uses_none_of_its_principal() -> None:
    overrides = QuotaOverrides(keys={KEY: KeyLimits(starts_per_minute=1)})
    kept = QuotaEnforcer(Quotas(starts_per_minute=2), clock=FakeClock(), overrides=overrides)
    kept.acquire_start(ALICE, key_id=KEY)

    with pytest.raises(QuotaExceeded) as caught:
        kept.acquire_start(ALICE, key_id=KEY)

    assert caught.value.extra["quota"] == "key_starts_per_minute"
    kept.acquire_start(ALICE, key_id=OTHER_KEY)
    with pytest.raises(QuotaExceeded):
        kept.acquire_start(ALICE, key_id=OTHER_KEY)


def test_the_streams_of_a_key_are_counted_within_those_of_its_principal() -> None:
    overrides = QuotaOverrides(keys={KEY: KeyLimits(streams=1)})
    kept = QuotaEnforcer(Quotas(streams=2), clock=FakeClock(), overrides=overrides)

    with kept.open_stream(ALICE, key_id=KEY):
        with pytest.raises(QuotaExceeded), kept.open_stream(ALICE, key_id=KEY):
            pass
        with kept.open_stream(ALICE), pytest.raises(QuotaExceeded), kept.open_stream(ALICE, key_id=OTHER_KEY):
            pass

    assert (kept.open_stream_count, kept.count_streams(ALICE), kept.count_key_streams(KEY)) == (0, 0, 0)
    with kept.open_stream(ALICE, key_id=KEY):
        pass


def test_replaced_quotas_apply_to_what_is_used_already() -> None:
    kept = QuotaEnforcer(Quotas(starts_per_minute=6), clock=FakeClock())
    for _ in range(3):
        kept.acquire_start(ALICE)

    kept.replace_overrides(QuotaOverrides(principals={ALICE: Quotas(starts_per_minute=1)}))
    with pytest.raises(QuotaExceeded):
        kept.acquire_start(ALICE)

    kept.replace_overrides(QuotaOverrides())
    kept.acquire_start(ALICE)
