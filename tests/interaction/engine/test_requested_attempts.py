"""Attempts that owners request while circuit breakers are open: at once, and never more than one probe of a shared origin."""

from datetime import timedelta

import pytest

from ringback.domain.circuit_breaker import ORIGIN_BREAKER_POLICY, REQUESTED_PROBE_SPACING_SECONDS
from ringback.domain.delivery import DeliveryState
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook
from ringback.notifier.concurrency_limiter import RECHECK_AFTER_SECONDS
from ringback.notifier.dispatcher import Dispatcher
from ringback.services.webhooks.attempt_scheduling import AttemptScheduler, OpenDeliveries
from tests.support.builders import make_delivery, make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.receivers_by_host import CONNECTION_REFUSED, ReceiversByHost
from tests.support.resolvers import PUBLIC_POLICY

pytestmark = pytest.mark.requirement("R27")

AGENT = "agent.example"
OWNERS = ORIGIN_BREAKER_POLICY.failures_to_open + 2


async def dispatch_all(dispatcher: Dispatcher) -> None:
    while await dispatcher.run_once():
        pass


async def insert_failing_webhooks(engine: Engine, dispatcher: Dispatcher) -> list[Webhook]:
    """Webhooks of many principals at one origin, whose breaker has just opened."""
    now = engine.clock.now()
    webhooks = [make_webhook(url=f"https://{AGENT}/{n}", principal=Principal(f"owner-{n}")) for n in range(OWNERS)]
    await engine.insert_webhooks(*webhooks)
    await engine.insert_deliveries(
        *(
            make_delivery(
                webhook_id=each.id, principal=each.principal, seq=1, due_at=now, give_up_at=now + timedelta(days=4)
            )
            for each in webhooks
        )
    )
    await dispatch_all(dispatcher)
    return webhooks


def make_scheduler(engine: Engine) -> AttemptScheduler:
    return AttemptScheduler(store=engine.store, clock=engine.clock, targets=PUBLIC_POLICY)


async def request_attempts(engine: Engine, webhooks: list[Webhook]) -> list[OpenDeliveries]:
    scheduler = make_scheduler(engine)
    return [await scheduler.schedule_all(each) for each in webhooks]


async def test_owners_of_one_origin_that_is_down_cause_one_probe_together(still: Engine) -> None:
    receivers = ReceiversByHost(CONNECTION_REFUSED)
    dispatcher = still.make_dispatcher(receivers)
    webhooks = await insert_failing_webhooks(still, dispatcher)
    before = len(receivers.posts)
    spacing = timedelta(seconds=REQUESTED_PROBE_SPACING_SECONDS)

    probes: list[int] = []
    answers: list[OpenDeliveries] = []
    for _ in range(3):
        answers = await request_attempts(still, webhooks)
        await dispatch_all(dispatcher)
        probes.append(len(receivers.posts) - before)
    latest = max(each.next_attempt_at for each in answers if each.next_attempt_at is not None)

    assert probes == [1] * 3
    assert still.clock.now() < latest <= still.clock.now() + spacing


async def test_a_mended_origin_gets_everything_after_one_request_of_one_owner(
    still: Engine, fake_clock: FakeClock
) -> None:
    receivers = ReceiversByHost(CONNECTION_REFUSED)
    dispatcher = still.make_dispatcher(receivers)
    webhooks = await insert_failing_webhooks(still, dispatcher)
    fake_clock.advance(1)
    receivers.set_response(AGENT, 204)

    (answer,) = await request_attempts(still, webhooks[:1])
    await dispatch_all(dispatcher)
    own = {each.state for each in await still.read_deliveries(webhooks[0].principal)}
    fake_clock.advance(RECHECK_AFTER_SECONDS)  # the other owners' next attempts are on their schedule
    await dispatch_all(dispatcher)

    assert answer.next_attempt_at == still.clock.now() - timedelta(seconds=RECHECK_AFTER_SECONDS)
    assert own == {DeliveryState.DELIVERED}
    for webhook in webhooks:
        assert {each.state for each in await still.read_deliveries(webhook.principal)} == {DeliveryState.DELIVERED}
