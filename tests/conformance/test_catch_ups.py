"""How far webhooks have come that catch up: written, read in turns, and ended."""

from dataclasses import replace

from ringback.domain.catch_up import CatchUp
from ringback.domain.ports import Store, Transaction
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_rows import WebhookPart
from tests.support.builders import a_webhook
from tests.support.examples import ALICE, BOB


async def catching_up(store: Store, webhook: Webhook, *, seq: int = 1) -> CatchUp:
    catch_up = CatchUp(webhook_id=webhook.id, principal=webhook.principal, seq=seq)

    async def insert(tx: Transaction) -> None:
        await tx.webhooks.insert(webhook)
        await tx.catch_ups.save(catch_up)

    await store.write(insert)
    return catch_up


async def get(store: Store, catch_up: CatchUp) -> CatchUp | None:
    return await store.read(lambda tx: tx.catch_ups.get(catch_up.webhook_id))


async def following(store: Store, after: str) -> CatchUp | None:
    return await store.read(lambda tx: tx.catch_ups.find_next(after=after))


async def test_a_place_is_written_moved_and_ended(store: Store) -> None:
    catch_up = await catching_up(store, a_webhook())
    moved = replace(catch_up, seq=7, delivered=5)

    assert await get(store, catch_up) == catch_up
    await store.write(lambda tx: tx.catch_ups.save(moved))
    assert await get(store, catch_up) == moved
    await store.write(lambda tx: tx.catch_ups.remove(moved.webhook_id))
    assert await get(store, catch_up) is None


async def test_principals_take_turns_and_the_oldest_webhook_of_each_goes_first(store: Store) -> None:
    alice, _, bob = [await catching_up(store, a_webhook(principal=who)) for who in (ALICE, ALICE, BOB)]

    assert await following(store, "") == alice
    assert await following(store, ALICE) == bob
    assert await following(store, BOB) == alice


async def test_nobody_is_next_when_nobody_catches_up(store: Store) -> None:
    assert await following(store, "") is None


async def test_disabling_a_webhook_ends_its_catch_up(store: Store) -> None:
    webhook = a_webhook()
    catch_up = await catching_up(store, webhook)

    await store.write(lambda tx: tx.webhooks.update(replace(webhook, description="still there"), WebhookPart.SETTINGS))
    assert await get(store, catch_up) == catch_up
    await store.write(lambda tx: tx.webhooks.update(replace(webhook, state=WebhookState.DISABLED), WebhookPart.STATE))

    assert await get(store, catch_up) is None


async def test_removing_a_webhook_ends_its_catch_up(store: Store) -> None:
    webhook = a_webhook()
    catch_up = await catching_up(store, webhook)

    await store.write(lambda tx: tx.webhooks.delete(webhook.id))

    assert await get(store, catch_up) is None
