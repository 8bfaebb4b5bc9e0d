"""Callbacks to names that hang, fail or do not exist: which attempts are recorded, and that other receivers are not slowed."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from ringback.domain import webhook_health as health
from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.circuit_breaker import CLOSED_BREAKER
from ringback.domain.delivery import DeliveryState
from ringback.domain.principal import Principal
from ringback.domain.webhook import Webhook, WebhookState
from ringback.notifier.dispatcher import Dispatcher, DispatcherConfig
from ringback.notifier.http import caching_resolver as look_ups
from ringback.notifier.http.client import Http1Sender
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.resolver import CAresResolver
from tests.support.builders import make_call, make_delivery, make_verified_webhook, make_webhook
from tests.support.clock import FakeClock
from tests.support.engine import Engine, running_dispatcher, wait_until
from tests.support.name_servers import HANG_BEHAVIOUR, Behaviour, NameServer, Records, ScriptedRecords, name_server
from tests.support.receivers import NO_CONTENT, CertificateAuthority, respond_with, serving_receiver
from tests.support.resolvers import LOOPBACK_POLICY

MALLORY, ALICE, BOB = Principal("mallory"), Principal("alice"), Principal("bob")
HOST = "agent.test"
SUSPENSION_SECONDS = health.SUSPEND_AFTER_SECONDS


@asynccontextmanager
async def make_dispatcher(engine: Engine, server: NameServer) -> AsyncGenerator[Dispatcher]:
    """The dispatcher and the sender of production, which look names up at the test's name server."""
    async with make_guarded_dispatcher(engine, server) as (dispatcher, _):
        yield dispatcher


@asynccontextmanager
async def make_guarded_dispatcher(
    engine: Engine, server: NameServer, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[tuple[Dispatcher, TargetGuard]]:
    guard = TargetGuard(LOOPBACK_POLICY, resolver=CAresResolver([server.address]))
    sender = Http1Sender(guard, clock=engine.clock, ssl_context=tls)
    try:
        yield (
            Dispatcher(
                store=engine.store,
                clock=engine.clock,
                ids=engine.ids,
                sender=sender,
                recorder=engine.recorder,
                delivery_handoff=engine.delivery_handoff,
                measurements=engine.measurements,
                policy=LOOPBACK_POLICY,
                random_fraction=lambda: 0.5,
                config=DispatcherConfig(owner="a dispatcher that looks names up"),
            ),
            guard,
        )
    finally:
        await sender.aclose()
        await guard.aclose()


async def dispatch_one_attempt(engine: Engine, scripted: ScriptedRecords, webhook: Webhook) -> Webhook:
    """End a call, attempt its callback while the name server says this, and read the webhook."""
    await engine.finish_call(make_call())
    async with name_server({HOST: scripted}) as server, make_dispatcher(engine, server) as dispatcher:
        await dispatcher.run_once()
    return await engine.read_webhook(webhook.id)


async def list_failing_origins(engine: Engine, *origins: str) -> int:
    return len(await engine.store.read(lambda tx: tx.origin_breakers.get_breakers(set(origins))))


@pytest.mark.requirement("R27")
@pytest.mark.parametrize("hung", [64, 500])
async def test_a_healthy_name_gets_callbacks_beside_hanging_names_and_its_breaker_stays_closed(
    engine: Engine, hung: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(look_ups, "RESOLVE_SECONDS", 60.0)  # so that they hang as long as the test lasts
    certificates, now = CertificateAuthority(), engine.clock.now()
    later = {"due_at": now, "give_up_at": now + timedelta(days=4)}
    async with (
        name_server({"healthy.test": Records("127.0.0.1")}, others=HANG_BEHAVIOUR) as server,
        serving_receiver(respond_with(NO_CONTENT), tls=certificates.server("healthy.test")) as receiver,
        make_guarded_dispatcher(engine, server, certificates.client()) as (dispatcher, guard),
    ):
        bad = [make_webhook(url=f"https://hung-{number}.test/", principal=MALLORY) for number in range(hung)]
        good = make_verified_webhook(url=receiver.url(host="healthy.test"), principal=ALICE)
        await engine.insert_webhooks(*bad, good)
        await engine.insert_deliveries(
            *(
                make_delivery(webhook_id=each.id, principal=MALLORY, seq=number, **later)
                for number, each in enumerate(bad, 1)
            )
        )
        async with running_dispatcher(dispatcher):
            await server.wait_for_query("hung-0.test")
            delivery = make_delivery(webhook_id=good.id, principal=ALICE, seq=1, **later)
            await engine.insert_deliveries(delivery)

            async def delivered() -> bool:
                return (await engine.read_delivery(delivery)).state is DeliveryState.DELIVERED

            await wait_until(delivered)
            assert (await engine.read_webhook(good.id)).breaker == CLOSED_BREAKER
            assert not await list_failing_origins(engine, receiver.url(host="healthy.test").rstrip("/"))
            await guard.aclose()  # ends what hangs, as the end of its time would, so that the dispatcher can stop


@pytest.mark.parametrize("scripted", [Behaviour.SERVER_FAILURE, Behaviour.REFUSED, Behaviour.MALFORMED])
async def test_a_failed_lookup_is_recorded_as_such_retried_and_opens_no_breaker(
    still: Engine, scripted: Behaviour
) -> None:
    webhook = make_verified_webhook(url=f"https://{HOST}/")
    await still.insert_webhooks(webhook)
    after = await dispatch_one_attempt(still, scripted, webhook)

    (delivery,) = await still.read_deliveries()
    (attempt,) = await still.read_attempts(delivery)
    assert (delivery.state, attempt.category) == (DeliveryState.PENDING, AttemptCategory.LOOK_UP_FAILED)
    assert (after.last_error, after.failing_since, after.state) == ("look_up_failed", None, WebhookState.ACTIVE)
    assert not await list_failing_origins(still, f"https://{HOST}")


async def test_a_receiver_whose_lookups_failed_gets_one_attempt_at_a_time(still: Engine) -> None:
    webhook = make_verified_webhook(url=f"https://{HOST}/")
    await still.insert_webhooks(webhook)
    assert health.is_healthy(webhook)

    assert not health.is_healthy(await dispatch_one_attempt(still, Behaviour.SERVER_FAILURE, webhook))


async def test_name_servers_that_are_down_for_days_suspend_no_webhook(still: Engine, fake_clock: FakeClock) -> None:
    webhook = make_verified_webhook(url=f"https://{HOST}/")
    await still.insert_webhooks(webhook)
    for _ in range(3):
        assert (await dispatch_one_attempt(still, Behaviour.SERVER_FAILURE, webhook)).state is WebhookState.ACTIVE
        fake_clock.advance(SUSPENSION_SECONDS)

    assert (await dispatch_one_attempt(still, Behaviour.NO_SUCH_NAME, webhook)).state is WebhookState.ACTIVE


async def test_a_delivery_to_a_name_that_never_resolves_is_dead_after_its_schedule(
    still: Engine, fake_clock: FakeClock
) -> None:
    webhook = make_webhook(url=f"https://{HOST}/")
    await still.insert_webhooks(webhook)
    await dispatch_one_attempt(still, Behaviour.SERVER_FAILURE, webhook)
    (delivery,) = await still.read_deliveries()
    async with name_server({}, others=Behaviour.SERVER_FAILURE) as server:
        while (delivery := await still.read_delivery(delivery)).state is DeliveryState.PENDING:
            fake_clock.advance(max((delivery.due_at - fake_clock.now()).total_seconds(), 300.0))
            async with make_dispatcher(still, server) as dispatcher:
                await dispatcher.run_once()

    assert (delivery.state, delivery.last_category) == (DeliveryState.DEAD, AttemptCategory.LOOK_UP_FAILED)
    assert (await still.read_webhook(webhook.id)).missed_from == delivery.seq


async def test_a_name_that_does_not_exist_for_96_hours_is_suspended(still: Engine, fake_clock: FakeClock) -> None:
    webhook = make_webhook(url=f"https://{HOST}/")
    await still.insert_webhooks(webhook)
    first = await dispatch_one_attempt(still, Behaviour.NO_SUCH_NAME, webhook)
    assert (first.last_error, first.state) == ("name_not_found", WebhookState.ACTIVE)
    assert await list_failing_origins(still, f"https://{HOST}") == 1

    fake_clock.advance(SUSPENSION_SECONDS)
    assert (await dispatch_one_attempt(still, Behaviour.NO_SUCH_NAME, webhook)).state is WebhookState.SUSPENDED


async def test_a_failed_lookup_neither_closes_nor_opens_the_breaker_of_an_origin(
    still: Engine, fake_clock: FakeClock
) -> None:
    webhook = make_webhook(url=f"https://{HOST}/")
    await still.insert_webhooks(webhook)
    await dispatch_one_attempt(still, Behaviour.NO_SUCH_NAME, webhook)
    before = await still.store.read(lambda tx: tx.origin_breakers.get_breakers({f"https://{HOST}"}))
    assert before[f"https://{HOST}"].failures == 1
    fake_clock.advance(600)
    await dispatch_one_attempt(still, Behaviour.SERVER_FAILURE, webhook)

    assert await still.store.read(lambda tx: tx.origin_breakers.get_breakers({f"https://{HOST}"})) == before
