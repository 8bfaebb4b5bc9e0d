"""One principal's large bodies have a part of each second, and wait for each other; small ones and those of others do not."""

import asyncio

import pytest

from ringback.domain.errors import InvalidRequest, QuotaExceeded
from ringback.domain.json_size import VALUES_MAX
from ringback.services.limits.body_admission import LARGE_BYTES, WAIT_SECONDS_MAX, WORK_RATE, BodyAdmission
from tests.support.clock import FakeClock, ManualClock
from tests.support.examples import ALICE, BOB

NUMBERS = b"[" + b"1," * (VALUES_MAX - 1) + b"1]"
TOO_MANY = b"[" + b"1," * VALUES_MAX + b"1]"
PROSE = b'["' + b"to be, or not: " * 250_000 + b'"]'


async def test_many_large_bodies_of_one_principal_take_a_quarter_of_the_time_at_most() -> None:
    clock = FakeClock()
    admission = BodyAdmission(clock=clock)
    work = len(NUMBERS) // 20 + VALUES_MAX // 2

    for _ in range(100):
        await admission.admit_body(ALICE, NUMBERS)

    assert clock.monotonic() >= (99 * work - WORK_RATE.burst) / WORK_RATE.per_second


async def test_small_bodies_and_other_principals_never_wait() -> None:
    clock = ManualClock()
    admission = BodyAdmission(clock=clock)
    waiting: list[asyncio.Task[None]] = []
    while not waiting or waiting[-1].done():
        waiting.append(asyncio.create_task(admission.admit_body(ALICE, NUMBERS)))
        await asyncio.sleep(0)

    await admission.admit_body(ALICE, b" " * LARGE_BYTES)
    await admission.admit_body(BOB, NUMBERS)

    clock.advance(WAIT_SECONDS_MAX)
    await asyncio.gather(*waiting)


async def test_a_body_that_would_wait_too_long_is_refused_and_counts_nothing() -> None:
    clock = ManualClock()
    admission = BodyAdmission(clock=clock)
    waiting = [asyncio.create_task(admission.admit_body(ALICE, PROSE)) for _ in range(100)]
    await asyncio.sleep(0)
    refused = [task.exception() for task in waiting if task.done() and task.exception() is not None]
    (retry_after,) = {error.retry_after_seconds for error in refused if isinstance(error, QuotaExceeded)}

    clock.advance(retry_after + WAIT_SECONDS_MAX)
    await asyncio.gather(*waiting, return_exceptions=True)

    assert 0 < len(refused) < len(waiting)
    await admission.admit_body(ALICE, PROSE)


async def test_a_body_with_too_many_values_is_refused_with_the_limits_and_prose_is_not() -> None:
    admission = BodyAdmission(clock=FakeClock())

    with pytest.raises(InvalidRequest, match="more than 250000 JSON values"):
        await admission.admit_body(ALICE, TOO_MANY)

    await admission.admit_body(ALICE, PROSE)
