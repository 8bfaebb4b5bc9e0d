"""API keys."""

from dataclasses import replace
from datetime import timedelta

from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import ApiKey, Scope
from tests.support.builders import make_api_key
from tests.support.clock import START
from tests.support.examples import BOB

LATER = START + timedelta(minutes=1)


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
