"""Catch-ups of webhooks: written, read in turns, and ended."""

from dataclasses import replace

from ringback.domain.catch_up import CatchUp
from ringback.domain.ports import Store, Transaction
from ringback.domain.webhook import Webhook, WebhookState
from ringback.domain.webhook_rows import WebhookPart
from tests.support.builders import make_webhook
from tests.support.examples import ALICE, BOB


async def insert_catch_up(store: Store, webhook: Webhook, *, seq: int = 1) -> CatchUp:
    catch_up = CatchUp(webhook_id=webhook.id, principal=webhook.principal, seq=seq)

    async def insert(tx: Transaction) -> None:
        await tx.webhooks.insert(webhook)
        await tx.catch_ups.save(catch_up)

    await store.write(insert)
    return catch_up


async def get_catch_up(store: Store, catch_up: CatchUp) -> CatchUp | None:
    return await store.read(lambda tx: tx.catch_ups.get(catch_up.webhook_id))


async def list_catch_ups(store: Store, after: str) -> CatchUp | None:
    return await store.read(lambda tx: tx.catch_ups.find_next(after=after))


async def test_a_catch_up_is_written_moved_and_ended(store: Store) -> None:
    catch_up = await insert_catch_up(store, make_webhook())
    moved = replace(catch_up, seq=7, delivered=5)

    assert await get_catch_up(store, catch_up) == catch_up
    await store.write(lambda tx: tx.catch_ups.save(moved))
    assert await get_catch_up(store, catch_up) == moved
    await store.write(lambda tx: tx.catch_ups.remove(moved.webhook_id))
    assert await get_catch_up(store, catch_up) is None


async def test_principals_take_turns_and_the_oldest_webhook_of_each_comes_first(store: Store) -> None:
    alice, _, bob = [await insert_catch_up(store, make_webhook(principal=who)) for who in (ALICE, ALICE, BOB)]

    assert await list_catch_ups(store, "") == alice
    assert await list_catch_ups(store, ALICE) == bob
    assert await list_catch_ups(store, BOB) == alice


async def test_the_catch_ups_of_one_principal_follow_each_other(store: Store) -> None:
    first, second, _ = [await insert_catch_up(store, make_webhook(principal=who)) for who in (ALICE, ALICE, BOB)]

    async def find_next_of_alice(after: CatchUp) -> CatchUp | None:
        return await store.read(lambda tx: tx.catch_ups.find_next_of(ALICE, after=after.webhook_id))

    assert await find_next_of_alice(first) == second
    assert await find_next_of_alice(second) is None


async def test_no_catch_up_is_next_when_there_is_none(store: Store) -> None:
    assert await list_catch_ups(store, "") is None


async def test_disabling_a_webhook_ends_its_catch_up(store: Store) -> None:
    webhook = make_webhook()
    catch_up = await insert_catch_up(store, webhook)

    await store.write(lambda tx: tx.webhooks.update(replace(webhook, description="still there"), WebhookPart.SETTINGS))
    assert await get_catch_up(store, catch_up) == catch_up
    await store.write(lambda tx: tx.webhooks.update(replace(webhook, state=WebhookState.DISABLED), WebhookPart.STATE))

    assert await get_catch_up(store, catch_up) is None


async def test_removing_a_webhook_ends_its_catch_up(store: Store) -> None:
    webhook = make_webhook()
    catch_up = await insert_catch_up(store, webhook)

    await store.write(lambda tx: tx.webhooks.delete(webhook.id))

    assert await get_catch_up(store, catch_up) is None
