"""Circuit breakers: a failing webhook or origin is paused, probed with one attempt at a time, and does not slow others."""

from collections import Counter
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta

import httpx
import pytest

from ringback.domain.circuit_breaker import (
    OPEN_SECONDS_STEPS,
    ORIGIN_BREAKER_POLICY,
    WEBHOOK_BREAKER_POLICY,
    CircuitState,
)
from ringback.domain.delivery import DeliveryState
from ringback.domain.ports import Store
from ringback.domain.signals import Signals, Waiter, webhook_due_topic
from ringback.domain.webhook import Webhook, with_url
from ringback.domain.webhook_rows import WebhookPart
from ringback.notifier.dispatcher import Dispatcher
from tests.support.builders import make_delivery, make_verified_webhook, make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import Engine, running_dispatcher, wait_until
from tests.support.receivers_by_host import CONNECTION_REFUSED, TIMEOUT, ReceiversByHost
from tests.support.stores import StoreWrapper

AGENT = "agent.example"


async def insert_due_deliveries(engine: Engine, webhook: Webhook, count: int) -> None:
    now = engine.clock.now()
    await engine.insert_deliveries(
        *(
            make_delivery(webhook_id=webhook.id, seq=seq, due_at=now, give_up_at=now + timedelta(days=4))
            for seq in range(1, count + 1)
        )
    )


async def dispatch_all(dispatcher: Dispatcher) -> None:
    while await dispatcher.run_once():
        pass


@pytest.mark.requirement("R27")
async def test_a_new_receiver_gets_one_attempt_at_a_time_until_it_has_answered(still: Engine) -> None:
    webhook, board = make_webhook(), ReceiversByHost()
    await still.insert_webhooks(webhook)
    await insert_due_deliveries(still, webhook, 5)
    dispatcher = still.make_dispatcher(board)

    assert [await dispatcher.run_once() for _ in range(3)] == [1, 4, 0]


@pytest.mark.requirement("R27")
async def test_a_receiver_that_failed_gets_one_attempt_at_a_time_until_it_answers_again(still: Engine) -> None:
    webhook, board = make_verified_webhook(), ReceiversByHost(500)
    await still.insert_webhooks(webhook)
    await insert_due_deliveries(still, webhook, 40)
    dispatcher = still.make_dispatcher(board, per_receiver_max=4)

    assert await dispatcher.run_once() == 4
    assert await dispatcher.run_once() == 1
    board.set_response(AGENT, 204)
    assert await dispatcher.run_once() == 0, "five failures in a row have opened the breaker"


@pytest.mark.requirement("R27")
async def test_while_a_breaker_is_open_nothing_is_sent_and_no_attempt_is_counted(
    still: Engine, fake_clock: FakeClock
) -> None:
    webhook, board = make_verified_webhook(), ReceiversByHost(500)
    await still.insert_webhooks(webhook)
    await insert_due_deliveries(still, webhook, 20)
    dispatcher = still.make_dispatcher(board)
    await dispatch_all(dispatcher)
    sent = len(board.posts)

    fake_clock.advance(OPEN_SECONDS_STEPS[0] - 1)
    assert await dispatcher.run_once() == 0

    assert len(board.posts) == sent == 20
    assert sum(delivery.attempts for delivery in await still.read_deliveries()) == sent


@pytest.mark.requirement("R27")
async def test_after_each_pause_one_probe_goes_and_a_failure_makes_the_next_pause_longer(
    still: Engine, fake_clock: FakeClock
) -> None:
    webhook, board = make_webhook(), ReceiversByHost(500)
    await still.insert_webhooks(webhook)
    await insert_due_deliveries(still, webhook, 40)
    dispatcher = still.make_dispatcher(board)
    for _ in range(WEBHOOK_BREAKER_POLICY.failures_to_open):
        assert await dispatcher.run_once() == 1

    for pause in [*OPEN_SECONDS_STEPS, OPEN_SECONDS_STEPS[-1]]:
        fake_clock.advance(pause - 0.001)
        assert await dispatcher.run_once() == 0
        fake_clock.advance(0.001)
        assert await dispatcher.run_once() == 1
        assert await dispatcher.run_once() == 0

    board.set_response(AGENT, 204)
    fake_clock.advance(OPEN_SECONDS_STEPS[-1])
    await dispatch_all(dispatcher)
    assert {each.state for each in await still.read_deliveries()} == {DeliveryState.DELIVERED}


@pytest.mark.requirement("R27")
async def test_a_pause_outlives_a_restart(still: Engine, fake_clock: FakeClock) -> None:
    webhook, board = make_webhook(), ReceiversByHost(500)
    await still.insert_webhooks(webhook)
    await insert_due_deliveries(still, webhook, 100)
    await dispatch_all(still.make_dispatcher(board))

    restarted = still.make_dispatcher(board)
    assert await restarted.run_once() == 0
    fake_clock.advance(OPEN_SECONDS_STEPS[0])
    assert await restarted.run_once() == 1


async def test_one_failing_webhook_pauses_no_other_of_the_same_origin(still: Engine) -> None:
    failing, fine = make_webhook(url="https://agent.example/failing"), make_webhook(url="https://agent.example/fine")
    await still.insert_webhooks(failing, fine)
    await insert_due_deliveries(still, failing, 20)

    async def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(500 if request.url.path == "/failing" else 204)

    dispatcher = still.make_dispatcher(answer)
    await dispatch_all(dispatcher)
    await insert_due_deliveries(still, fine, 1)

    assert await dispatcher.run_once() == 1
    assert (await still.read_webhook(failing.id)).breaker.state(still.clock.now()) is CircuitState.OPEN


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("silence", [CONNECTION_REFUSED, TIMEOUT])
async def test_an_unreachable_origin_is_paused_for_all_its_webhooks(
    still: Engine, fake_clock: FakeClock, silence: str
) -> None:
    board = ReceiversByHost(silence)
    webhooks = [
        make_webhook(url=f"https://agent.example/{number}")
        for number in range(ORIGIN_BREAKER_POLICY.failures_to_open + 5)
    ]
    elsewhere = make_webhook(url="https://elsewhere.example/")
    board.set_response("elsewhere.example", 204)
    await still.insert_webhooks(*webhooks, elsewhere)
    dispatcher = still.make_dispatcher(board)
    for webhook in webhooks[: ORIGIN_BREAKER_POLICY.failures_to_open]:
        await insert_due_deliveries(still, webhook, 1)
    await dispatch_all(dispatcher)
    sent = len(board.posts)
    for webhook in [*webhooks[ORIGIN_BREAKER_POLICY.failures_to_open :], elsewhere]:
        await insert_due_deliveries(still, webhook, 1)

    assert await dispatcher.run_once() == 1, "only the other origin's"
    restarted = still.make_dispatcher(board)
    assert await restarted.run_once() == 0
    fake_clock.advance(ORIGIN_BREAKER_POLICY.open_seconds_steps[0])
    assert await restarted.run_once() == 1, "one probe for the whole origin"
    assert len(board.posts) == sent + 2

    board.set_response(AGENT, 500)
    fake_clock.advance(ORIGIN_BREAKER_POLICY.open_seconds_steps[1])
    assert await restarted.run_once() == 1
    assert await restarted.run_once() > 1, "whatever it says, an origin that answers is there"


async def test_a_receiver_that_answers_anything_keeps_its_origin_open(still: Engine) -> None:
    webhooks = [make_webhook(url=f"https://agent.example/{number}") for number in range(30)]
    await still.insert_webhooks(*webhooks)
    for webhook in webhooks:
        await insert_due_deliveries(still, webhook, 1)

    await dispatch_all(still.make_dispatcher(ReceiversByHost(503)))

    assert await still.store.read(lambda tx: tx.origin_breakers.get_breakers(["https://agent.example"])) == {}


@pytest.mark.requirement("R27")
async def test_deliveries_that_expire_during_a_breaker_pause_are_given_up_without_an_attempt(
    still: Engine, fake_clock: FakeClock
) -> None:
    webhook, board = make_webhook(), ReceiversByHost(500)
    await still.insert_webhooks(webhook)
    await insert_due_deliveries(still, webhook, 50)
    dispatcher = still.make_dispatcher(board)
    await dispatch_all(dispatcher)

    fake_clock.advance(4 * 86400)
    assert await dispatcher.run_once() == 1, "the probe"
    assert await dispatcher.run_once() == 0

    deliveries = await still.read_deliveries()
    assert {each.state for each in deliveries} == {DeliveryState.DEAD}
    assert [each.attempts for each in deliveries].count(0) == 44


async def test_a_new_url_begins_without_the_failures_of_the_old_one(still: Engine) -> None:
    webhook = make_webhook()
    await still.insert_webhooks(webhook)
    await insert_due_deliveries(still, webhook, 50)
    board = ReceiversByHost(500)
    board.set_response("moved.example", 204)
    await dispatch_all(still.make_dispatcher(board))
    failing = await still.read_webhook(webhook.id)

    await still.store.write(lambda tx: tx.webhooks.update(with_url(failing, "https://moved.example/"), *WebhookPart))

    assert await still.make_dispatcher(board).run_once() == 1
    assert (await still.read_webhook(webhook.id)).failing_since is None


class CountingSignals:
    """Implements `domain.signals.Signals`, and counts the subscriptions that are open."""

    def __init__(self, signals: Signals) -> None:
        self._signals = signals
        self.subscribed: Counter[str] = Counter()

    def listen(self, *topics: str) -> AbstractContextManager[Waiter]:
        return self._signals.listen(*topics)

    @contextmanager
    def subscribe(self, callback: Callable[[], None], *topics: str, also_after_losses: bool = True) -> Generator[None]:
        self.subscribed.update(topics)
        with self._signals.subscribe(callback, *topics, also_after_losses=also_after_losses):
            yield
        self.subscribed.subtract(topics)


class StoreWithCountingSignals(StoreWrapper):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._counting = CountingSignals(store.signals)

    @property
    def signals(self) -> CountingSignals:
        return self._counting


async def test_a_stopped_dispatcher_listens_to_no_requests_for_webhooks_that_wait(
    still: Engine, fake_clock: FakeClock
) -> None:
    webhook = make_webhook()
    await still.insert_webhooks(webhook)
    await insert_due_deliveries(still, webhook, 50)
    store = StoreWithCountingSignals(still.store)
    dispatcher = Engine(store, fake_clock).make_dispatcher(ReceiversByHost(500))
    subscribed, topic = store.signals.subscribed, webhook_due_topic(webhook.id)

    async def waits_for_a_request() -> bool:
        return subscribed[topic] == 1

    async with running_dispatcher(dispatcher):
        await wait_until(waits_for_a_request)

    assert subscribed[topic] == 0
