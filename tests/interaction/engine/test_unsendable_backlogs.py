"""Many deliveries that are not sent: of a webhook that takes none, or past their time behind an open breaker."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import pytest

from ringback.domain.circuit_breaker import CircuitBreaker
from ringback.domain.delivery import DeliveryState
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_health import RELEASE_BATCH_SIZE
from ringback.notifier.unsendable_deliveries import GIVE_UP_BATCH_SIZE
from tests.support.builders import START, make_delivery, make_verified_webhook
from tests.support.clock import FakeClock
from tests.support.engine import Engine, running_dispatcher, wait_until
from tests.support.scripted_receiver import ScriptedReceiver
from tests.support.stores import StoreWrapper

T = TypeVar("T")

LONG_PAUSE = timedelta(hours=1)


async def insert_backlog(engine: Engine, webhook: Webhook, count: int, **changes: Any) -> None:
    """Due deliveries, more than one batch."""
    now = engine.clock.now()
    await engine.insert_webhooks(webhook)
    await engine.insert_deliveries(
        *(
            make_delivery(
                webhook_id=webhook.id, seq=seq, due_at=now, **{"give_up_at": now + timedelta(days=4)} | changes
            )
            for seq in range(1, count + 1)
        )
    )


async def run_until_all_are(engine: Engine, state: DeliveryState) -> None:
    """Run a dispatcher that polls once an hour. Fails if it waits for that."""

    async def has_ended() -> bool:
        return {each.state for each in await engine.read_deliveries()} == {state}

    receiver = ScriptedReceiver(204)
    async with running_dispatcher(engine.make_dispatcher(receiver, poll_seconds=3600.0)):
        await wait_until(has_ended)
    assert receiver.posts == []


@pytest.mark.parametrize(
    "changes", [{"state": WebhookState.DISABLED}, {"paused_at": START}], ids=["disabled", "paused"]
)
async def test_a_backlog_of_a_webhook_that_takes_none_is_held_without_a_poll_for_each_batch(
    engine: Engine, changes: dict[str, Any]
) -> None:
    """The next batch waited for the next poll, so a hundred thousand deliveries took minutes, and large ones hours."""
    await insert_backlog(engine, make_verified_webhook(**changes), RELEASE_BATCH_SIZE + 1)

    await run_until_all_are(engine, DeliveryState.HELD)


async def test_a_backlog_that_expires_behind_an_open_breaker_is_given_up_without_a_pause_for_each_batch(
    engine: Engine,
) -> None:
    """Each batch waited ten seconds, so what expired faster than that was never given up."""
    now = engine.clock.now()
    open_breaker = CircuitBreaker(failures=5, openings=1, paused_until=now + LONG_PAUSE)
    await insert_backlog(
        engine, make_verified_webhook(breaker=open_breaker), 2 * GIVE_UP_BATCH_SIZE + 1, give_up_at=now
    )

    await run_until_all_are(engine, DeliveryState.DEAD)


async def test_a_webhook_behind_an_open_breaker_costs_no_unit_of_its_own_before_something_expires(
    still: Engine, fake_clock: FakeClock
) -> None:
    """Each had one every ten seconds, and at its end another lease: ten thousand took all the time of the node."""
    open_breaker = CircuitBreaker(failures=5, openings=1, paused_until=fake_clock.now() + LONG_PAUSE)
    webhook = make_verified_webhook(breaker=open_breaker)
    await insert_backlog(still, webhook, 2, give_up_at=fake_clock.now() + timedelta(minutes=1))
    store = still.store = UnitCountingStore(still.store)
    dispatcher = still.make_dispatcher(ScriptedReceiver(204))

    await dispatcher.run_once()
    before = store.of_principals
    fake_clock.advance(60)
    await dispatcher.run_once()

    assert (before, store.of_principals) == (0, 1)
    assert {each.state for each in await still.read_deliveries()} == {DeliveryState.DEAD}


class UnitCountingStore(StoreWrapper):
    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.of_principals = 0

    async def write_for(self, principal: Principal, work: Callable[[Transaction], Awaitable[T]]) -> T:
        self.of_principals += 1
        return await super().write_for(principal, work)
