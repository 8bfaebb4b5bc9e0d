"""Rotation of the key ring: values of old keys are sealed again, and unreadable values affect no others."""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx
import orjson
import pytest
from standardwebhooks import Webhook as StandardWebhook

from ringback.domain.attempt_category import AttemptCategory
from ringback.domain.clock import Clock
from ringback.domain.delivery import DeliveryState
from ringback.domain.encryption import RESEALED_BYTES_MAX, SealedColumn
from ringback.domain.ports import Transaction
from ringback.domain.webhook import SECRETS_UNREADABLE, Webhook, WebhookState, with_rotated_secret
from ringback.domain.webhook_rows import WebhookPart
from ringback.resealing import RETRY_SECONDS, STEP_PAUSE_SECONDS, Resealer, count_sealed_by_key
from ringback.signing.sealing import KEY_BYTES, AesGcmSealer
from ringback.signing.secrets import generate_secret
from ringback.storage.open import open_store
from tests.support.builders import make_call, make_delivery, make_verified_webhook
from tests.support.clock import FakeClock, OffsetClock
from tests.support.databases import database_url
from tests.support.engine import WAIT_SECONDS, Engine, wait_until
from tests.support.stores import FailingStore

KEYS: Final = {name: name.encode() * KEY_BYTES for name in ("a", "b", "c", "d")}
SECRET: Final = "whsec_" + "bmV3" * 8


@asynccontextmanager
async def engine_with(folder: Path, clock: Clock, *names: str) -> AsyncGenerator[Engine]:
    """An engine whose store has these keys, newest first."""
    sealer = AesGcmSealer({name: KEYS[name] for name in names}, current=names[0], random_bytes=os.urandom)
    async with open_store(database_url(folder), clock=clock, sealer=sealer, exclusive=True) as store:
        yield Engine(FailingStore(store), clock)


async def run_dispatcher_rounds(engine: Engine) -> list[httpx.Request]:
    """What goes out while dispatcher and janitor look a few times."""
    sent: list[httpx.Request] = []

    def take(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return httpx.Response(204)

    dispatcher, janitor = engine.make_dispatcher(take), engine.make_janitor()
    for _ in range(4):
        await dispatcher.run_once()
        await janitor.run_once()
    return sent


async def count_sealed_rows(engine: Engine) -> Mapping[str, int]:
    return await count_sealed_by_key(engine.store)


async def finish(engine: Engine, count: int) -> None:
    for _ in range(count):
        await engine.finish_call(make_call())


async def dispatch_all(engine: Engine, receiver: Callable[[httpx.Request], httpx.Response]) -> None:
    dispatcher = engine.make_dispatcher(receiver)
    while await dispatcher.run_once():
        pass


async def rotate(engine: Engine, webhook: Webhook, secret: str) -> None:
    async def rotate(tx: Transaction) -> bool:
        found = await tx.webhooks.get(webhook.id)
        assert found is not None
        return await tx.webhooks.update(
            with_rotated_secret(found, secret, now=tx.now(), overlap_seconds=3600), WebhookPart.SECRETS
        )

    assert await engine.store.write(rotate)


async def run_resealing(engine: Engine, newest: str) -> None:
    """Until everything is sealed with the newest key."""
    stop = asyncio.Event()
    work = asyncio.create_task(Resealer(store=engine.store, sleep=engine.clock.sleep).run(stop))

    async def current() -> bool:
        return set(await count_sealed_rows(engine)) == {newest}

    await wait_until(current)
    stop.set()
    await asyncio.wait_for(work, WAIT_SECONDS)


async def test_resealing_pauses_while_the_store_is_unavailable(tmp_path: Path, fake_clock: FakeClock) -> None:
    stop, pauses = asyncio.Event(), list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            stop.set()

    async with engine_with(tmp_path, fake_clock, "a") as engine:
        assert isinstance(engine.store, FailingStore)
        engine.store.refusals = 2
        await asyncio.wait_for(Resealer(store=engine.store, sleep=sleep).run(stop), WAIT_SECONDS)
    assert pauses == [RETRY_SECONDS, RETRY_SECONDS, STEP_PAUSE_SECONDS]


async def read_states(engine: Engine, webhook: Webhook) -> Collection[DeliveryState]:
    return [delivery.state for delivery in await engine.read_deliveries() if delivery.webhook_id == webhook.id]


# -- what cannot be opened --------------------------------------------------------------------------------------------------


async def test_a_webhook_with_unreadable_secrets_does_not_affect_others(tmp_path: Path, fake_clock: FakeClock) -> None:
    lost, well = make_verified_webhook(), make_verified_webhook(url="https://well.example/hook")
    async with engine_with(tmp_path, fake_clock, "a") as engine:
        await engine.insert_webhooks(lost)
    async with engine_with(tmp_path, fake_clock, "b") as engine:
        await engine.insert_webhooks(well)

        await engine.finish_call(make_call())
        sent = await run_dispatcher_rounds(engine)

        assert [request.url.host for request in sent] == ["well.example"]
        after = await engine.read_webhook(lost.id)
        assert (after.state, after.last_error) == (WebhookState.SUSPENDED, SECRETS_UNREADABLE)
        assert await read_states(engine, lost) == [DeliveryState.HELD]


async def test_deliveries_resume_when_the_key_of_a_webhook_is_restored(tmp_path: Path, fake_clock: FakeClock) -> None:
    webhook = make_verified_webhook()
    async with engine_with(tmp_path, fake_clock, "a") as engine:
        await engine.insert_webhooks(webhook)
    async with engine_with(tmp_path, fake_clock, "b") as engine:
        await engine.finish_call(make_call())
        assert await run_dispatcher_rounds(engine) == []
    async with engine_with(tmp_path, fake_clock, "b", "a") as engine:
        fake_clock.advance(2 * 3600)

        assert len(await run_dispatcher_rounds(engine)) == 1
        after = await engine.read_webhook(webhook.id)
        assert (after.state, after.secrets) == (WebhookState.ACTIVE, webhook.secrets)


async def test_deliveries_resume_when_the_owner_sets_a_new_secret(tmp_path: Path, fake_clock: FakeClock) -> None:
    webhook = make_verified_webhook()
    async with engine_with(tmp_path, fake_clock, "a") as engine:
        await engine.insert_webhooks(webhook)
    async with engine_with(tmp_path, fake_clock, "b") as engine:
        await engine.finish_call(make_call())
        await run_dispatcher_rounds(engine)

        await rotate(engine, webhook, SECRET)
        fake_clock.advance(2 * 3600)

        assert len(await run_dispatcher_rounds(engine)) == 1


async def test_an_unreadable_callback_is_dead_leaves_a_gap_and_affects_no_other(
    tmp_path: Path, fake_clock: FakeClock
) -> None:
    webhook = make_verified_webhook()
    lost, well = make_delivery(webhook_id=webhook.id, seq=7), make_delivery(webhook_id=webhook.id, seq=8)
    async with engine_with(tmp_path, fake_clock, "a") as engine:
        await engine.insert_deliveries(lost)
    async with engine_with(tmp_path, fake_clock, "b") as engine:
        await engine.insert_webhooks(webhook)
        await engine.insert_deliveries(well)

        sent = await run_dispatcher_rounds(engine)

        after = await engine.read_delivery(lost)
        assert (after.state, after.last_category, after.attempts) == (DeliveryState.DEAD, AttemptCategory.UNREADABLE, 0)
        assert (await engine.read_delivery(well)).state is DeliveryState.DELIVERED
        assert [orjson.loads(request.content).get("type") for request in sent] == [None, "gap"]


# -- what is sealed anew ----------------------------------------------------------------------------------------------------


async def test_after_resealing_the_old_key_can_be_removed(tmp_path: Path, fake_clock: FakeClock) -> None:
    webhook, delivery = make_verified_webhook(), make_delivery(body=b'{"kept": true}')
    async with engine_with(tmp_path, fake_clock, "a") as engine:
        await engine.insert_webhooks(webhook)
        await engine.insert_deliveries(delivery)
        assert await count_sealed_rows(engine) == {"a": 2}
    async with engine_with(tmp_path, fake_clock, "b", "a") as engine:
        await engine.insert_deliveries(make_delivery())
        assert await count_sealed_rows(engine) == {"a": 2, "b": 1}

        await run_resealing(engine, "b")

        assert await count_sealed_rows(engine) == {"b": 3}
    async with engine_with(tmp_path, fake_clock, "b") as engine:
        assert (await engine.read_webhook(webhook.id)).secrets == webhook.secrets
        assert (await engine.read_delivery(delivery)).body == delivery.body


async def test_a_process_killed_while_resealing_resumes_where_it_stopped(tmp_path: Path, fake_clock: FakeClock) -> None:
    deliveries = [make_delivery() for _ in range(5)]
    async with engine_with(tmp_path, fake_clock, "a") as engine:
        await engine.insert_deliveries(*deliveries)
    async with engine_with(tmp_path, fake_clock, "b", "a") as engine:
        step = await engine.store.write(lambda tx: tx.sealed_values.reseal(SealedColumn.BODIES, after="", limit=2))
        assert (step.resealed, step.last_id) == (2, deliveries[1].id)
    async with engine_with(tmp_path, fake_clock, "b", "a") as engine:
        await run_resealing(engine, "b")

        assert await count_sealed_rows(engine) == {"b": 5}
        assert not any(delivery.is_unreadable for delivery in await engine.read_deliveries())


async def test_large_bodies_are_sealed_again_a_few_at_a_time(tmp_path: Path, fake_clock: FakeClock) -> None:
    """200 bodies of 256 KiB were one transaction, which had them all in memory."""
    deliveries = [make_delivery(body=b"x" * (RESEALED_BYTES_MAX // 3)) for _ in range(4)]
    async with engine_with(tmp_path, fake_clock, "a") as engine:
        await engine.insert_deliveries(*deliveries)
    async with engine_with(tmp_path, fake_clock, "b", "a") as engine:
        step = await engine.store.write(lambda tx: tx.sealed_values.reseal(SealedColumn.BODIES, after="", limit=200))
        assert (step.resealed, step.last_id) == (2, deliveries[1].id)

        await run_resealing(engine, "b")

        assert await count_sealed_rows(engine) == {"b": 4}


async def test_unreadable_values_stay_unchanged(tmp_path: Path, fake_clock: FakeClock) -> None:
    lost, old = make_delivery(), make_delivery()
    async with engine_with(tmp_path, fake_clock, "a") as engine:
        await engine.insert_deliveries(lost)
    async with engine_with(tmp_path, fake_clock, "b") as engine:
        await engine.insert_deliveries(old)
    async with engine_with(tmp_path, fake_clock, "c", "b") as engine:
        step = await engine.store.write(lambda tx: tx.sealed_values.reseal(SealedColumn.BODIES, after="", limit=10))

        assert (step.resealed, step.unreadable, step.last_id) == (1, 1, old.id)
        assert await count_sealed_rows(engine) == {"a": 1, "c": 1}
        end = await engine.store.write(lambda tx: tx.sealed_values.reseal(SealedColumn.BODIES, after=old.id, limit=10))
        assert end.last_id is None


async def test_resealing_waits_for_an_unavailable_store(tmp_path: Path, fake_clock: FakeClock) -> None:
    async with engine_with(tmp_path, fake_clock, "a") as engine:
        await engine.insert_deliveries(make_delivery())
    async with engine_with(tmp_path, fake_clock, "b", "a") as engine:
        assert isinstance(engine.store, FailingStore)
        engine.store.refusals = 3

        await run_resealing(engine, "b")

        assert await count_sealed_rows(engine) == {"b": 1}


@pytest.mark.requirement("R23")
async def test_over_three_rotations_of_all_keys_no_callback_fails_to_verify(
    tmp_path: Path, clock: OffsetClock, *, deep: bool
) -> None:
    """The store's and the webhook's; the receiver learns of a new secret some time after it has begun to sign."""
    webhook, each = make_verified_webhook(), 167 if deep else 4
    known, received = webhook.secrets[0].value, 0

    def verify(request: httpx.Request) -> httpx.Response:
        nonlocal received
        StandardWebhook(known).verify(request.content, dict(request.headers), json_parse=False)
        received += 1
        return httpx.Response(204)

    async with engine_with(tmp_path, clock, "a") as engine:
        await engine.insert_webhooks(webhook)
    for number, names in enumerate([("b", "a"), ("c", "b"), ("d", "c")]):
        async with engine_with(tmp_path, clock, *names) as engine:
            await finish(engine, each)
            secret = generate_secret(bytes([number]) * 32)
            await rotate(engine, webhook, secret)
            await run_resealing(engine, names[0])
            await dispatch_all(engine, verify)
            known = secret
            await finish(engine, each)
            await dispatch_all(engine, verify)

    assert received == 6 * each
