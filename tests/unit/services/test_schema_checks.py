"""Checks against the schemas of one principal have a part of each second."""

from contextlib import suppress

import pytest

from ringback.domain.errors import QuotaExceeded
from ringback.services.limits.schema_checks import CHECK_RATE, PAYLOADS_REFUSED, SchemaCheckLimiter
from tests.support.clock import FakeClock
from tests.support.examples import ALICE, BOB

CHECK_SECONDS = 0.3


async def test_checks_of_one_principal_take_a_quarter_of_the_time_at_most() -> None:
    clock = FakeClock()
    used = 0.0
    limiter = SchemaCheckLimiter(clock=clock, read_cpu_seconds=lambda: used)
    checks = 0

    while clock.monotonic() < 100:
        try:
            with limiter.measure_check(ALICE, PAYLOADS_REFUSED):
                used += CHECK_SECONDS
                checks += 1
        except QuotaExceeded as refused:
            await clock.sleep(refused.retry_after_seconds)

    share, burst = CHECK_RATE.per_second / 1e6, CHECK_RATE.burst / 1e6
    assert 0.7 * share * 100 < checks * CHECK_SECONDS <= share * clock.monotonic() + burst + CHECK_SECONDS


async def test_a_check_that_fails_counts_and_those_of_another_principal_are_not_refused() -> None:
    used = 0.0
    limiter = SchemaCheckLimiter(clock=FakeClock(), read_cpu_seconds=lambda: used)
    with suppress(ZeroDivisionError), limiter.measure_check(ALICE, PAYLOADS_REFUSED):
        used += 2.0
        raise ZeroDivisionError

    with pytest.raises(QuotaExceeded), limiter.measure_check(ALICE, PAYLOADS_REFUSED):
        pytest.fail("a refused check runs")
    with limiter.measure_check(BOB, PAYLOADS_REFUSED):
        pass
