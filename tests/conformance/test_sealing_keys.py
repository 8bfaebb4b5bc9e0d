"""Each store says which key an id of the key ring means, and refuses a node that has another key with that id."""

import asyncio
import os
from pathlib import Path
from typing import Final

import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.services import sealing_keys
from ringback.services.sealing_keys import register_current_key
from ringback.signing.sealing import KEY_BYTES, AesGcmSealer, KeyRing
from ringback.storage.open import open_store
from tests.support.builders import make_delivery
from tests.support.clock import FakeClock
from tests.support.databases import database_url

OURS: Final = KeyRing(keys={"k": b"a" * KEY_BYTES}, current_id="k")
THEIRS: Final = KeyRing(keys={"k": b"b" * KEY_BYTES}, current_id="k")
ROTATED: Final = KeyRing(keys={"new": b"c" * KEY_BYTES, **THEIRS.keys}, current_id="new")


async def start(store: Store, ring: KeyRing) -> None:
    values = ring.compute_check_values()
    await register_current_key(store, values, current=ring.current_id, source="RINGBACK_SECRET_KEYS")


async def test_a_node_with_the_same_key_starts_again(store: Store) -> None:
    await start(store, OURS)
    await start(store, OURS)


@pytest.mark.parametrize("ring", [THEIRS, ROTATED], ids=["current", "older"])
async def test_a_node_with_another_key_of_the_same_id_is_refused_and_changes_nothing(
    store: Store, ring: KeyRing
) -> None:
    await start(store, OURS)
    before = await store.read(lambda tx: tx.sealing_keys.list_all())

    with pytest.raises(StoreUnavailable, match=r"another key with the id 'k'.*All nodes need the same keys") as refused:
        await start(store, ring)

    assert refused.value.needs_operator
    assert await store.read(lambda tx: tx.sealing_keys.list_all()) == before


async def test_of_two_nodes_that_start_at_once_with_other_keys_one_is_refused(store: Store) -> None:
    results = await asyncio.gather(start(store, OURS), start(store, THEIRS), return_exceptions=True)

    assert [type(result) for result in results if result is not None] == [StoreUnavailable]


async def test_a_key_without_a_check_value_gets_that_of_the_first_node_that_has_it(store: Store) -> None:
    await store.write(lambda tx: tx.sealing_keys.add("k", None))

    await start(store, KeyRing(keys={"new": b"c" * KEY_BYTES, **OURS.keys}, current_id="new"))

    with pytest.raises(StoreUnavailable, match="another key"):
        await start(store, ROTATED)


@pytest.mark.parametrize("sealed_by_old", [0, 1])
async def test_a_dropped_key_is_looked_for_in_pages_and_missed_if_it_sealed_the_last_row(
    store: Store, tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, *, sealed_by_old: int
) -> None:
    """One statement over all callbacks of a large database would take longer than a statement may: no node would start."""
    monkeypatch.setattr(sealing_keys, "PAGE_ROWS", 2)
    await store.write(lambda tx: tx.sealing_keys.add("old", None))
    await store.write(lambda tx: tx.deliveries.insert([make_delivery() for _ in range(5)]))
    old = AesGcmSealer({"old": b"o" * KEY_BYTES}, current="old", random_bytes=os.urandom)
    async with open_store(database_url(tmp_path), clock=clock, sealer=old, exclusive=False) as other:
        await other.write(lambda tx: tx.deliveries.insert([make_delivery() for _ in range(sealed_by_old)]))

    if sealed_by_old:
        with pytest.raises(StoreUnavailable, match=r"were sealed with 'old'"):
            await start(store, OURS)
    else:
        await start(store, OURS)
    assert set(await store.read(lambda tx: tx.sealing_keys.list_all())) == ({"old"} if sealed_by_old else {"k"})


async def test_a_key_that_was_accepted_as_lost_and_comes_back_is_not_lost(store: Store, clock: FakeClock) -> None:
    await start(store, OURS)
    await store.write(lambda tx: tx.sealing_keys.accept_loss("k", now=clock.now()))

    await start(store, OURS)

    assert (await store.read(lambda tx: tx.sealing_keys.list_all()))["k"].lost_at is None
