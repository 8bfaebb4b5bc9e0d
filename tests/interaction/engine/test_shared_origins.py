"""Principals that share an origin: the paths of one may hang without a delay for the others, and a dead origin costs little."""

from collections.abc import Sequence

import httpx
import pytest

from ringback.domain.circuit_breaker import ORIGIN_BREAKER_POLICY
from ringback.domain.delivery import DeliveryState
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook
from ringback.notifier.concurrency_limiter import ConcurrencyLimits
from ringback.notifier.dispatcher import Dispatcher
from ringback.notifier.permits import ReceiverKey
from tests.support.builders import make_verified_webhook, make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.examples import ALICE, BOB
from tests.support.receivers_by_host import CONNECTION_REFUSED, TIMEOUT, ReceiversByHost

ORIGIN = "https://agent.example"
HUNG = 2 * ORIGIN_BREAKER_POLICY.failures_to_open
PAUSES = ORIGIN_BREAKER_POLICY.open_seconds_steps


async def respond_or_hang(request: httpx.Request) -> httpx.Response:
    if request.url.path.startswith("/hung"):
        raise httpx.ReadTimeout("no response in time", request=request)
    return httpx.Response(204)


async def dispatch_all(dispatcher: Dispatcher) -> None:
    while await dispatcher.run_once():
        pass


async def insert_hung_webhooks(engine: Engine, principal: Principal, count: int) -> Sequence[Webhook]:
    webhooks = [make_webhook(principal=principal, url=f"{ORIGIN}/hung-{number}") for number in range(count)]
    await engine.insert_webhooks(*webhooks)
    for webhook in webhooks:
        await engine.insert_due_deliveries(webhook, 1)
    return webhooks


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("is_new", [False, True])
async def test_hanging_paths_of_one_principal_stop_no_other_at_the_same_origin(
    still: Engine, fake_clock: FakeClock, *, is_new: bool
) -> None:
    dispatcher = still.make_dispatcher(respond_or_hang)
    await insert_hung_webhooks(still, ALICE, HUNG)
    await dispatch_all(dispatcher)
    for _ in range(3):
        fake_clock.advance(PAUSES[-1])  # each later attempt fails, too
        await dispatch_all(dispatcher)
    make = make_webhook if is_new else make_verified_webhook
    webhook = make(principal=BOB, url=f"{ORIGIN}/fine")
    await still.insert_webhooks(webhook)

    deliveries = await still.insert_due_deliveries(webhook, 3)
    await dispatch_all(dispatcher)

    assert {(await still.read_delivery(each)).state for each in deliveries} == {DeliveryState.DELIVERED}


async def test_a_principal_whose_paths_hang_is_probed_once_after_each_pause(
    still: Engine, fake_clock: FakeClock
) -> None:
    await insert_hung_webhooks(still, ALICE, HUNG)
    dispatcher = still.make_dispatcher(respond_or_hang)
    await dispatch_all(dispatcher)
    await insert_hung_webhooks(still, ALICE, HUNG)

    assert await dispatcher.run_once() == 0
    restarted = still.make_dispatcher(respond_or_hang)
    assert await restarted.run_once() == 0
    fake_clock.advance(PAUSES[0])
    assert [await restarted.run_once() for _ in range(2)] == [1, 0]


async def test_a_healthy_webhook_closes_the_breaker_that_its_principals_hanging_paths_have_opened(
    still: Engine, fake_clock: FakeClock
) -> None:
    dispatcher = still.make_dispatcher(respond_or_hang)
    await insert_hung_webhooks(still, ALICE, HUNG)
    await dispatch_all(dispatcher)
    await insert_hung_webhooks(still, ALICE, HUNG)
    healthy = make_verified_webhook(principal=ALICE, url=f"{ORIGIN}/fine")
    await still.insert_webhooks(healthy)
    (delivery,) = await still.insert_due_deliveries(healthy, 1)

    fake_clock.advance(PAUSES[0])
    assert await dispatcher.run_once() == 1

    assert (await still.read_delivery(delivery)).state is DeliveryState.DELIVERED
    key = ReceiverKey(ALICE, ORIGIN).breaker_key
    assert await still.store.read(lambda tx: tx.origin_breakers.get_breakers([key])) == {}


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("silence", [CONNECTION_REFUSED, TIMEOUT])
async def test_a_dead_origin_of_many_principals_gets_one_probe_after_each_pause(
    still: Engine, fake_clock: FakeClock, silence: str, *, deep: bool
) -> None:
    board = ReceiversByHost(silence)
    webhooks = [
        make_verified_webhook(principal=Principal(f"tenant-{number}"), url=f"{ORIGIN}/{number}")
        for number in range(10_000 if deep else ConcurrencyLimits().per_origin_max + 10)
    ]
    await still.insert_webhooks(*webhooks)
    for webhook in webhooks:
        await still.insert_due_deliveries(webhook, 1)
    dispatcher = still.make_dispatcher(board)

    await dispatch_all(dispatcher)
    assert len(board.posts) <= ConcurrencyLimits().per_origin_max

    for pause in [*PAUSES, PAUSES[-1]]:
        fake_clock.advance(pause)
        assert [await dispatcher.run_once() for _ in range(2)] == [1, 0]
    board.set_response("agent.example", 204)
    fake_clock.advance(PAUSES[-1])
    assert await dispatcher.run_once() == 1
    assert await dispatcher.run_once() > 0, "its backlog follows"


@pytest.mark.requirement("R27")
async def test_a_healthy_webhook_probes_an_origin_where_many_principals_hang(
    still: Engine, fake_clock: FakeClock
) -> None:
    dispatcher = still.make_dispatcher(respond_or_hang)
    for number in range(ORIGIN_BREAKER_POLICY.failures_to_open):
        await insert_hung_webhooks(still, Principal(f"tenant-{number}"), 2)
    await dispatch_all(dispatcher)
    webhook = make_verified_webhook(principal=BOB, url=f"{ORIGIN}/fine")
    await still.insert_webhooks(webhook)
    (delivery,) = await still.insert_due_deliveries(webhook, 1)
    assert await dispatcher.run_once() == 0, "that many principals have had no response, and nobody has had one"

    fake_clock.advance(PAUSES[0])
    await dispatcher.run_once()

    assert (await still.read_delivery(delivery)).state is DeliveryState.DELIVERED
    assert await still.store.read(lambda tx: tx.origin_breakers.get_breakers([ORIGIN])) == {}
