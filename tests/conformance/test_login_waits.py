"""Calls that wait for a login, and logins whose calls are still being queued."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from ringback.domain.call_rows import Tombstone
from ringback.domain.login_waits import NO_TOKENS_VERSION, LoginResumption
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.domain.upstream_logins import SHARED_OWNER
from tests.support.builders import make_call
from tests.support.clock import START
from tests.support.examples import ALICE, BOB
from tests.support.logins import read_waiting


async def test_calls_wait_for_the_login_of_their_owner_to_their_upstream(store: Store) -> None:
    calls = [make_call() for _ in range(4)]
    waits = [("git", ALICE), ("git", ALICE), ("git", BOB), ("time", ALICE)]

    async def add(tx: Transaction) -> None:
        for call, (upstream, owner) in zip(calls, waits, strict=True):
            await tx.calls.insert(call)
            await tx.login_waits.add(call.id, upstream, owner, tokens_version=1)

    await store.write(add)
    ids = [call.id for call in calls]
    assert await read_waiting(store, "git", ALICE) == ids[:2]
    assert await list_refused_before(store, 2, limit=1) == ids[:1]
    await store.write(lambda tx: tx.login_waits.remove(ids[:1]))
    assert await read_waiting(store, "git", ALICE) == ids[1:2]
    assert not await read_waiting(store, "git", SHARED_OWNER)


async def test_a_call_waits_once(store: Store) -> None:
    call = make_call()

    async def add(tx: Transaction) -> None:
        await tx.calls.insert(call)
        for owner in (ALICE, BOB):
            await tx.login_waits.add(call.id, "git", owner, tokens_version=1)

    await store.write(add)
    assert (await read_waiting(store, "git", ALICE), await read_waiting(store, "git", BOB)) == ([], [call.id])


async def test_a_call_that_is_deleted_waits_no_longer(store: Store) -> None:
    call = make_call()

    async def add_and_delete(tx: Transaction) -> None:
        await tx.calls.insert(call)
        await tx.login_waits.add(call.id, "git", ALICE, tokens_version=1)
        await tx.tombstones.archive(
            Tombstone(call_id=call.id, principal=ALICE, idempotency_key=None, request_hash="", expired_at=START)
        )

    await store.write(add_and_delete)
    assert not await read_waiting(store, "git", ALICE)


async def test_calls_that_were_refused_with_older_tokens_come_first_and_those_of_this_login_not_at_all(
    store: Store,
) -> None:
    calls = [make_call() for _ in range(3)]

    async def add(tx: Transaction) -> None:
        for call, refused_version in zip(calls, (7, NO_TOKENS_VERSION, 8), strict=True):
            await tx.calls.insert(call)
            await tx.login_waits.add(call.id, "git", ALICE, tokens_version=refused_version)

    await store.write(add)
    assert await list_refused_before(store, 8, limit=3) == [calls[1].id, calls[0].id]


async def test_the_resumption_that_was_worked_on_longest_ago_is_next(store: Store) -> None:
    one = make_resumption(owner=Principal("one"))
    two = make_resumption(owner=Principal("two"), worked_at=START + timedelta(seconds=1))
    assert await find_resumption(store) is None
    for resumption in (two, one):
        await save(store, resumption)
    assert await find_resumption(store) == one

    worked_on = replace(one, worked_at=START + timedelta(seconds=2))
    await save(store, worked_on)
    assert await find_resumption(store) == two
    await store.write(lambda tx: tx.login_waits.remove_resumption(two))
    assert await find_resumption(store) == worked_on


async def test_a_resumption_is_that_of_the_last_login(store: Store) -> None:
    first, second = make_resumption(tokens_version=1), make_resumption(tokens_version=2)
    for resumption in (first, second, first):
        await save(store, resumption)
    assert await find_resumption(store) == second

    await store.write(lambda tx: tx.login_waits.remove_resumption(first))
    assert await find_resumption(store) == second, "its janitor had not seen the second login"
    await store.write(lambda tx: tx.login_waits.remove_resumption(second))
    assert await find_resumption(store) is None


def make_resumption(**over: Any) -> LoginResumption:
    fields: dict[str, Any] = {"upstream": "git", "owner": ALICE, "tokens_version": 1, "worked_at": START}
    return LoginResumption(**fields | over)


async def save(store: Store, resumption: LoginResumption) -> None:
    await store.write(lambda tx: tx.login_waits.save_resumption(resumption))


async def find_resumption(store: Store) -> LoginResumption | None:
    return await store.read(lambda tx: tx.login_waits.find_next_resumption())


async def list_refused_before(store: Store, tokens_version: int, *, limit: int) -> Sequence[str]:
    return await store.read(
        lambda tx: tx.login_waits.list_waiting("git", ALICE, tokens_version=tokens_version, limit=limit)
    )
