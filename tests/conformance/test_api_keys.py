"""API keys."""

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from ringback.domain.ids import KeyId
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import ApiKey, Scope
from tests.support.builders import make_api_key
from tests.support.clock import START
from tests.support.examples import BOB

LATER = START + timedelta(minutes=1)
NEW_ID = KeyId("key_new")


async def insert(store: Store, *keys: ApiKey) -> None:
    async def work(tx: Transaction) -> None:
        for key in keys:
            await tx.api_keys.insert(key)

    await store.write(work)


async def test_a_key_is_found_by_its_hash_as_it_was_written(store: Store) -> None:
    plain = make_api_key()
    narrow = make_api_key(principal=BOB, scopes=frozenset({Scope.ADMIN}), upstreams=frozenset({"git", "time"}))
    blind = make_api_key(upstreams=frozenset())
    await insert(store, plain, narrow, blind)

    for key in (plain, narrow, blind):
        assert await store.read(lambda tx, key=key: tx.api_keys.find_by_hash(key.hash)) == key
    assert await store.read(lambda tx: tx.api_keys.find_by_hash("another")) is None
    assert await store.read(lambda tx: tx.api_keys.list_all()) == [plain, narrow, blind]


async def test_a_key_is_revoked_once_and_stays_known(store: Store) -> None:
    key, other = make_api_key(), make_api_key()
    await insert(store, key, other)

    revoked = [await store.write(lambda tx: tx.api_keys.revoke(key.id, now=LATER)) for _ in range(2)]

    assert revoked == [True, False]
    assert await store.read(lambda tx: tx.api_keys.find_by_hash(key.hash)) == replace(key, revoked_at=LATER)
    assert await store.read(lambda tx: tx.api_keys.find_by_hash(other.hash)) == other


async def test_a_key_is_replaced_once_and_expires_no_later_than_before(store: Store) -> None:
    forever, short = make_api_key(), make_api_key(expires_at=LATER)
    await insert(store, forever, short)

    async def replace_key(key: ApiKey, *, minutes: int, now: datetime = START) -> bool:
        ends_at = START + timedelta(minutes=minutes)
        return await store.write(
            lambda tx: tx.api_keys.replace(key.id, replaced_by=NEW_ID, expires_at=ends_at, now=now)
        )

    assert [await replace_key(forever, minutes=5), await replace_key(short, minutes=5)] == [True, True]
    assert not await replace_key(forever, minutes=9)

    found = [await store.read(lambda tx, key=key: tx.api_keys.get(key.id)) for key in (forever, short)]
    assert found == [
        replace(forever, expires_at=START + timedelta(minutes=5), replaced_by=NEW_ID),
        replace(short, replaced_by=NEW_ID),
    ]


async def test_an_expired_or_revoked_key_is_not_replaced(store: Store) -> None:
    expired, revoked = make_api_key(expires_at=START), make_api_key(revoked_at=START)
    await insert(store, expired, revoked)

    for key in (expired, revoked):
        replaced = await store.write(
            lambda tx, key=key: tx.api_keys.replace(key.id, replaced_by=NEW_ID, expires_at=LATER, now=START)
        )
        assert not replaced
        assert await store.read(lambda tx, key=key: tx.api_keys.get(key.id)) == key


async def test_keys_are_listed_in_pages_of_all_principals_or_of_one(store: Store) -> None:
    first, foreign, last = make_api_key(), make_api_key(principal=BOB), make_api_key()
    await insert(store, first, foreign, last)

    page = await store.read(lambda tx: tx.api_keys.list_page(None, position=None, limit=2))
    rest = await store.read(lambda tx: tx.api_keys.list_page(None, position=page.next_position, limit=2))
    own = await store.read(lambda tx: tx.api_keys.list_page(first.principal, position=None, limit=2))

    assert (list(page), list(rest), rest.next_position) == ([last, foreign], [first], None)
    assert (list(own), own.next_position) == ([last, first], None)


async def is_single(store: Store, *, now: datetime = START) -> bool:
    return await store.read(lambda tx: tx.key_owners.is_single(now=now))


async def test_the_owner_of_keys_is_single_until_a_second_one_has_a_valid_key(store: Store) -> None:
    assert not await is_single(store)  # there is none
    await insert(store, make_api_key(), make_api_key(), make_api_key(revoked_at=START))
    assert await is_single(store)

    short = make_api_key(principal=BOB, expires_at=LATER)
    await insert(
        store, make_api_key(principal=BOB, revoked_at=START), short, make_api_key(principal=BOB, expires_at=START)
    )
    assert (await is_single(store), await is_single(store, now=LATER)) == (False, True)

    await store.write(lambda tx: tx.api_keys.revoke(short.id, now=START))
    assert await is_single(store)


@pytest.mark.parametrize("starts_calls", ["alice", "bob"])
@pytest.mark.parametrize("scope", Scope)
async def test_a_principal_counts_if_its_keys_can_start_or_adopt_calls(
    store: Store, scope: Scope, starts_calls: str
) -> None:
    other = "bob" if starts_calls == "alice" else "alice"
    await insert(
        store,
        make_api_key(principal=starts_calls),
        make_api_key(principal=other, scopes=frozenset({Scope.METRICS, scope})),
    )

    assert await is_single(store) == (scope not in {Scope.CALLS, Scope.ADOPT, Scope.ADMIN})


async def test_a_principal_with_many_revoked_keys_counts_by_its_last_valid_one(store: Store) -> None:
    revoked = [make_api_key(principal=principal, revoked_at=START) for principal in ("alice", "bob", "carol") * 3]
    await insert(store, *revoked, make_api_key(principal="alice"), make_api_key(principal="carol"))

    assert not await is_single(store)
