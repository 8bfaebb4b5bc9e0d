"""A receiver that was away gets its backlog at about the rate that it is used to, and beginning with one attempt."""

from collections.abc import Sequence

import httpx
import pytest

from ringback.domain.circuit_breaker import OPEN_SECONDS_STEPS
from ringback.domain.delivery import Delivery, DeliveryState
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook
from ringback.notifier.backlog_limiter import BacklogLimiter
from ringback.notifier.dispatcher import Dispatcher
from tests.support.builders import make_call, make_verified_webhook
from tests.support.clock import FakeClock
from tests.support.engine import Engine, running_dispatcher, wait_until
from tests.support.receivers_by_host import CONNECTION_REFUSED, ReceiversByHost

pytestmark = pytest.mark.requirement("R27")

AGENT = "agent.example"
PER_SECOND = 60
STEP_SECONDS = 0.1


async def dispatch_all(dispatcher: Dispatcher) -> int:
    sent = 0
    while count := await dispatcher.run_once():
        sent += count
    return sent


async def send_for(dispatcher: Dispatcher, clock: FakeClock, seconds: float) -> list[int]:
    """How many attempts are made in each step."""
    counts: list[int] = []
    for _ in range(round(seconds / STEP_SECONDS)):
        counts.append(await dispatch_all(dispatcher))
        clock.advance(STEP_SECONDS)
    return counts


def highest_in_a_second(counts: Sequence[int]) -> int:
    steps = round(1 / STEP_SECONDS)
    return max(sum(counts[start : start + steps]) for start in range(len(counts) - steps + 1))


def backlogs_of(dispatcher: Dispatcher) -> BacklogLimiter:
    return dispatcher._limiter.backlogs  # pyright: ignore[reportPrivateUsage] - an outage takes too long in real time


async def work_steadily(engine: Engine, clock: FakeClock, dispatcher: Dispatcher, webhook: Webhook) -> None:
    """The callbacks of ten seconds."""
    await engine.insert_due_deliveries(webhook, 10 * PER_SECOND)
    assert await dispatch_all(dispatcher) == 10 * PER_SECOND
    clock.advance(10)


async def go_away(
    engine: Engine, clock: FakeClock, dispatcher: Dispatcher, board: ReceiversByHost, *webhooks: Webhook
) -> list[Delivery]:
    """The backlog of the outage, which ends with the pause of the breaker."""
    board.set_response(AGENT, CONNECTION_REFUSED)
    backlog = [each for webhook in webhooks for each in await engine.insert_due_deliveries(webhook, 6 * PER_SECOND)]
    await dispatch_all(dispatcher)
    board.set_response(AGENT, 204)
    clock.advance(OPEN_SECONDS_STEPS[0])
    return backlog


@pytest.mark.parametrize("failure", [500, CONNECTION_REFUSED])
async def test_a_receiver_that_was_away_gets_at_most_twice_its_usual_callbacks_in_any_second(
    still: Engine, fake_clock: FakeClock, failure: int | str
) -> None:
    webhook, board = make_verified_webhook(), ReceiversByHost()
    await still.insert_webhooks(webhook)
    dispatcher = still.make_dispatcher(board)
    await work_steadily(still, fake_clock, dispatcher, webhook)
    board.set_response(AGENT, failure)
    await still.insert_due_deliveries(webhook, 6 * PER_SECOND)
    failed = await dispatch_all(dispatcher)
    board.set_response(AGENT, 204)
    fake_clock.advance(OPEN_SECONDS_STEPS[0])

    counts = await send_for(dispatcher, fake_clock, 6)

    assert 1.5 * PER_SECOND <= highest_in_a_second(counts) <= 2 * PER_SECOND
    assert sum(counts) == 6 * PER_SECOND
    delivered = [each for each in await still.read_deliveries() if each.state is DeliveryState.DELIVERED]
    assert sum(each.attempts for each in delivered) == (10 + 6) * PER_SECOND + failed, "waiting costs no attempts"


async def test_after_a_restart_in_the_outage_the_backlog_begins_at_the_lowest_rate(
    still: Engine, fake_clock: FakeClock
) -> None:
    webhook, board = make_verified_webhook(), ReceiversByHost()
    await still.insert_webhooks(webhook)
    await go_away(still, fake_clock, still.make_dispatcher(board), board, webhook)

    counts = await send_for(still.make_dispatcher(board), fake_clock, 8)

    assert highest_in_a_second(counts) <= 100, "fifty at once, and as many in the second"
    assert sum(counts) == 6 * PER_SECOND


async def test_another_receiver_is_not_limited_by_a_backlog(still: Engine, fake_clock: FakeClock) -> None:
    away, other = make_verified_webhook(), make_verified_webhook(url="https://other.example/")
    board = ReceiversByHost()
    await still.insert_webhooks(away, other)
    dispatcher = still.make_dispatcher(board)
    await go_away(still, fake_clock, dispatcher, board, away)
    await still.insert_due_deliveries(other, 500)

    await dispatch_all(dispatcher)

    assert len(board.bodies("other.example")) == 500


async def test_the_principals_of_an_origin_get_its_permits_in_turns(still: Engine, fake_clock: FakeClock) -> None:
    many, few = make_verified_webhook(), make_verified_webhook(principal=Principal("bob"))
    board = ReceiversByHost()
    await still.insert_webhooks(many, few)
    dispatcher = still.make_dispatcher(board)
    await go_away(still, fake_clock, dispatcher, board, many)
    await send_for(dispatcher, fake_clock, 1)
    late = await still.insert_due_deliveries(few, 3)

    await send_for(dispatcher, fake_clock, 1)

    assert {(await still.read_delivery(each)).state for each in late} == {DeliveryState.DELIVERED}
    assert DeliveryState.PENDING in {each.state for each in await still.read_deliveries()}


async def test_the_backlog_of_an_ordered_webhook_arrives_in_order(still: Engine, fake_clock: FakeClock) -> None:
    webhook, board = make_verified_webhook(ordered=True), ReceiversByHost()
    await still.insert_webhooks(webhook)
    deliveries = await still.insert_due_deliveries(webhook, 80, order_key="session")
    dispatcher = still.make_dispatcher(board)
    board.set_response(AGENT, 500)
    for pause in (5, 30, 120, 600):
        await dispatch_all(dispatcher)
        fake_clock.advance(pause * 1.2)
    await dispatch_all(dispatcher)
    fake_clock.advance(OPEN_SECONDS_STEPS[-1])
    board.set_response(AGENT, 204)
    board.posts.clear()
    fake_clock.advance(1800 * 1.2)

    await send_for(dispatcher, fake_clock, 3)

    assert [post.headers["webhook-id"] for post in board.posts] == [each.event_id for each in deliveries]


async def test_a_running_dispatcher_sends_the_whole_backlog_without_another_event(engine: Engine) -> None:
    """Nothing wakes it but the limits themselves: its poll interval is longer than the test may last."""
    webhook, board = make_verified_webhook(), ReceiversByHost()
    await engine.insert_webhooks(webhook)
    dispatcher = engine.make_dispatcher(board, poll_seconds=3600)
    backlogs_of(dispatcher).begin_recovery(f"https://{AGENT}", now=engine.clock.now())
    deliveries = await engine.insert_due_deliveries(webhook, 60)

    async def is_delivered() -> bool:
        return all([(await engine.read_delivery(each)).state is DeliveryState.DELIVERED for each in deliveries])

    async with running_dispatcher(dispatcher):
        await wait_until(is_delivered)


async def test_new_callbacks_count_for_the_rate_while_the_backlog_is_sent(engine: Engine) -> None:
    webhook = make_verified_webhook()
    await engine.insert_webhooks(webhook)
    dispatcher = engine.make_dispatcher(lambda _: httpx.Response(204))
    backlogs_of(dispatcher).begin_recovery(f"https://{AGENT}", now=engine.clock.now())

    async with running_dispatcher(dispatcher):
        for _ in range(3):
            await engine.finish_call(make_call())

    rates = backlogs_of(dispatcher)._rates  # pyright: ignore[reportPrivateUsage] - three callbacks are no limit yet
    assert rates.get_highest(f"https://{AGENT}") == pytest.approx(0.3)
