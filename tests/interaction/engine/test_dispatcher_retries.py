"""What becomes of a delivery that its receiver did not take: the ladder, what the answer says about it, and the end."""

from datetime import timedelta

import httpx
import pytest

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.clock import seconds
from ringback.domain.delivery import DeliveryState
from ringback.domain.retry import RETRY_SCHEDULES, RetryProfile
from tests.support.clock import START, FakeClock
from tests.support.engine import Engine
from tests.support.scripted_receiver import ScriptedReceiver, make_due_delivery, wait_until_due

DAY = 86400


# -- the ladder -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("profile", RetryProfile)
async def test_a_receiver_that_stays_down_is_retried_by_the_schedule_and_then_given_up(
    still: Engine, fake_clock: FakeClock, profile: RetryProfile
) -> None:
    delivery = await make_due_delivery(still, retries=profile)
    mailman = ScriptedReceiver(500)
    dispatcher = still.make_dispatcher(mailman)
    waits: list[timedelta] = []

    while await dispatcher.run_once() and (await still.read_delivery(delivery)).state is DeliveryState.PENDING:
        assert await dispatcher.run_once() == 0
        waits.append(await wait_until_due(still, fake_clock, delivery))

    assert waits == [seconds(step) for step in RETRY_SCHEDULES[profile].delays_seconds]
    given_up = await still.read_delivery(delivery)
    assert (given_up.state, given_up.attempts) == (DeliveryState.DEAD, len(waits) + 1)
    assert (given_up.last_category, given_up.finished_at) == (AttemptCategory.HTTP_5XX, fake_clock.now())
    assert [attempt.number for attempt in await still.read_attempts(delivery)] == list(range(len(waits) + 1, 0, -1))
    assert len(mailman.posts) == len(waits) + 1


@pytest.mark.requirement("R27")
async def test_a_receiver_that_comes_back_gets_its_delivery(still: Engine, fake_clock: FakeClock) -> None:
    delivery = await make_due_delivery(still)
    dispatcher = still.make_dispatcher(ScriptedReceiver(500, 503, 204))

    for _ in range(3):
        await dispatcher.run_once()
        await wait_until_due(still, fake_clock, delivery)

    assert (await still.read_delivery(delivery)).state is DeliveryState.DELIVERED
    recorded = [(each.number, each.status_code, each.category) for each in await still.read_attempts(delivery)]
    assert recorded == [
        (3, 204, AttemptCategory.DELIVERED),
        (2, 503, AttemptCategory.HTTP_5XX),
        (1, 500, AttemptCategory.HTTP_5XX),
    ]


async def test_a_delivery_is_given_up_at_its_age_however_seldom_it_was_tried(
    still: Engine, fake_clock: FakeClock
) -> None:
    delivery = await make_due_delivery(still)
    fake_clock.advance(4 * DAY + 1)

    await still.make_dispatcher(ScriptedReceiver(500)).run_once()

    given_up = await still.read_delivery(delivery)
    assert (given_up.state, given_up.attempts) == (DeliveryState.DEAD, 1)


async def test_a_late_delivery_is_tried_once_more_before_it_is_given_up(still: Engine, fake_clock: FakeClock) -> None:
    delivery = await make_due_delivery(still)
    fake_clock.advance(4 * DAY + 1)

    await still.make_dispatcher(ScriptedReceiver(204)).run_once()

    assert (await still.read_delivery(delivery)).state is DeliveryState.DELIVERED


# -- answers ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [410, 413])
async def test_an_answer_that_cannot_change_ends_the_delivery_at_once(still: Engine, status: int) -> None:
    delivery = await make_due_delivery(still)

    await still.make_dispatcher(ScriptedReceiver(status)).run_once()

    ended = await still.read_delivery(delivery)
    assert (ended.state, ended.attempts) == (DeliveryState.DEAD, 1)


@pytest.mark.parametrize(
    ("status", "asked", "waited"),
    [
        (503, "120", 120),
        (429, "120", 120),
        (503, "1", 5),
        (503, str(30 * DAY), DAY),
        (503, "Fri, 20 Nov 2026 17:10:00 GMT", 600),
        (500, "120", 5),
        (503, "soon", 5),
    ],
)
async def test_a_receiver_may_request_a_longer_delay_within_bounds(
    still: Engine, status: int, asked: str, waited: int
) -> None:
    delivery = await make_due_delivery(still)

    await still.make_dispatcher(ScriptedReceiver(httpx.Response(status, headers={"retry-after": asked}))).run_once()

    assert (await still.read_delivery(delivery)).due_at == START + timedelta(seconds=waited)


async def test_a_redirect_is_a_failure_and_is_not_followed(still: Engine) -> None:
    delivery = await make_due_delivery(still)
    mailman = ScriptedReceiver(httpx.Response(307, headers={"location": "https://elsewhere.example/"}))

    await still.make_dispatcher(mailman).run_once()

    failed = await still.read_delivery(delivery)
    assert (failed.state, failed.last_category) == (DeliveryState.PENDING, AttemptCategory.HTTP_3XX)
    assert [request.url.host for request in mailman.posts] == ["agent.example"]


async def test_the_receivers_response_is_stored_for_the_owner(still: Engine) -> None:
    delivery = await make_due_delivery(still)

    await still.make_dispatcher(ScriptedReceiver(httpx.Response(500, content=b"out of paper"))).run_once()

    (attempt,) = await still.read_attempts(delivery)
    assert (attempt.excerpt, attempt.status_code, attempt.started_at) == ("out of paper", 500, START)


async def test_a_target_that_is_not_allowed_any_more_is_not_connected_to(still: Engine) -> None:
    delivery = await make_due_delivery(still, url="http://127.0.0.1:9/hook")
    mailman = ScriptedReceiver(204)

    await still.make_dispatcher(mailman).run_once()

    refused = await still.read_delivery(delivery)
    assert (refused.state, refused.last_category) == (DeliveryState.PENDING, AttemptCategory.URL_NOT_ALLOWED)
    assert mailman.posts == []
