"""What is left of expired calls."""

from dataclasses import replace
from datetime import timedelta

import pytest

from ringback.domain.call_rows import hash_task
from ringback.domain.ids import CallId, first_id_at
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.webhook import WebhookOrigin
from tests.support.builders import make_call, make_tombstone, make_webhook
from tests.support.clock import START
from tests.support.examples import ALICE, BOB


async def test_an_archived_call_leaves_only_its_tombstone(store: Store) -> None:
    call = make_call(idempotency_key="key-1")
    await store.write(lambda tx: tx.calls.insert(call))
    await store.write(lambda tx: tx.call_completions.put_results({call.id: b"{}"}))
    tombstone = make_tombstone(call_id=call.id, idempotency_key="key-1")

    await store.write(lambda tx: tx.tombstones.archive(tombstone))

    assert await store.read(lambda tx: tx.calls.get(call.id)) is None
    assert await store.read(lambda tx: tx.call_completions.get_result(call.id)) is None
    assert await store.read(lambda tx: tx.calls.find_by_idempotency_key(ALICE, "key-1")) is None
    assert await store.read(lambda tx: tx.tombstones.get(ALICE, call_id=call.id, key=None)) == tombstone
    assert await store.read(lambda tx: tx.tombstones.get(ALICE, call_id=None, key="key-1")) == tombstone


async def test_a_tombstone_is_found_by_its_own_principal_and_its_own_names_only(store: Store) -> None:
    tombstone = make_tombstone()
    await store.write(lambda tx: tx.tombstones.archive(tombstone))

    assert await store.read(lambda tx: tx.tombstones.get(BOB, call_id=tombstone.call_id, key=None)) is None
    assert await store.read(lambda tx: tx.tombstones.get(ALICE, call_id=None, key="key-1")) is None
    assert await store.read(lambda tx: tx.tombstones.get(ALICE, call_id=None, key=None)) is None


async def test_the_task_of_an_archived_call_is_known_as_that_of_another_principal(store: Store) -> None:
    of_bob, of_both = hash_task("files", "task-1"), hash_task("files", "task-2")
    for principal, task_hash in ((BOB, of_bob), (ALICE, of_both), (BOB, of_both)):
        stone = make_tombstone(principal=principal, task_hash=task_hash)
        await store.write(lambda tx, stone=stone: tx.tombstones.archive(stone))

    async def is_foreign(task_hash: str, principal: Principal) -> bool:
        return await store.read(lambda tx: tx.tombstones.has_task_of_another(task_hash, principal))

    assert await is_foreign(of_bob, ALICE)
    assert not await is_foreign(of_bob, BOB)
    assert await is_foreign(of_both, ALICE)
    assert await is_foreign(of_both, BOB)
    assert not await is_foreign(hash_task("files", "task-3"), ALICE)


async def test_old_tombstones_are_forgotten_in_bounded_steps_oldest_first(store: Store) -> None:
    stones = [make_tombstone(expired_at=START + timedelta(days=day)) for day in range(4)]
    for stone in stones:
        await store.write(lambda tx, stone=stone: tx.tombstones.archive(stone))
    older_than = START + timedelta(days=3)

    counts = [await store.write(lambda tx: tx.tombstones.remove(cutoff=older_than, limit=2)) for _ in range(3)]

    assert counts == [2, 1, 0]
    assert await store.read(lambda tx: tx.tombstones.get(ALICE, call_id=stones[3].call_id, key=None)) == stones[3]


async def test_the_webhook_that_came_with_a_call_expires_with_it(store: Store) -> None:
    call = make_call()
    own = make_webhook(call_id=call.id, origin=WebhookOrigin.CALL)
    registered = make_webhook(call_id=call.id)

    async def bury(tx: Transaction) -> None:
        await tx.calls.insert(call)
        await tx.webhooks.insert(own)
        await tx.webhooks.insert(registered)
        await tx.tombstones.archive(make_tombstone(call_id=call.id, expired_at=START))

    await store.write(bury)

    assert await store.read(lambda tx: tx.webhooks.get(own.id)) == replace(own, expires_at=START)
    assert await store.read(lambda tx: tx.webhooks.get(registered.id)) == registered


async def test_the_hashes_of_a_principals_older_calls_are_removed_in_bounded_steps(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ringback.storage.rows.calls.ROWS_SCANNED_MAX", 2)
    hashed = {"request_hash": "a" * 64}
    expired = [make_tombstone(expired_at=START + timedelta(days=day), **hashed) for day in range(4)]
    newer = make_tombstone(call_id=CallId(f"{first_id_at('call', START + timedelta(days=9))}{0:016}"), **hashed)
    foreign, unstarted = make_tombstone(principal=BOB, **hashed), make_tombstone(request_hash="unstarted")
    for stone in (*expired, newer, foreign, unstarted):
        await store.write(lambda tx, stone=stone: tx.tombstones.archive(stone))

    position, steps = 0, 0
    while position is not None:
        position = await store.write(
            lambda tx, position=position: tx.tombstones.mark_expired_erased(
                ALICE, position=position, until=START + timedelta(days=8)
            )
        )
        steps += 1

    assert steps > 2
    for stone in (newer, foreign, unstarted):
        found = await store.read(
            lambda tx, stone=stone: tx.tombstones.get(stone.principal, call_id=stone.call_id, key=None)
        )
        assert found == stone
    for stone in expired:
        found = await store.read(lambda tx, stone=stone: tx.tombstones.get(ALICE, call_id=stone.call_id, key=None))
        assert found == replace(stone, request_hash="", erased=True)
