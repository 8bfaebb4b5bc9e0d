"""The key ring of a service, which must be the one that its database was written with."""

import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from ringback.bootstrap.world import World
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.keyring import load_key_ring, missing_key_file, source_of_keys
from ringback.services.sealing_keys import accept_loss, begin_sealing, explain_missing, missing_keys
from ringback.settings import Settings
from ringback.signing.sealing import KEY_BYTES, AesGcmSealer, KeyRing
from ringback.storage.open import open_store, sqlite_path


async def key_ring_of(settings: Settings, world: World) -> KeyRing:
    """The ring from the settings or the key file. A key file is made only where no earlier one is missed.

    Raises `StoreUnavailable` when the database holds what only the missing key file opens.
    """
    file = missing_key_file(settings)
    if file is not None and sqlite_path(settings.database_url).exists():
        async with open_without_keys(settings, world) as store:
            missing = await store.read(lambda tx: missing_keys(tx, ()))
        if missing:
            raise StoreUnavailable(explain_missing(missing, str(file)), needs_operator=True)
    return load_key_ring(settings, random_bytes=world.random_bytes)


async def require_keys(store: Store, ring: KeyRing, settings: Settings) -> None:
    """Raise `StoreUnavailable` unless the ring opens all that is stored."""
    source = source_of_keys(settings)
    await store.write(lambda tx: begin_sealing(tx, ring.keys.keys(), current=ring.current, source=source))


async def accept_restore(settings: Settings) -> None:
    """Take the database as it is, although commits are missing. Raises `StoreUnavailable` while a service has it open."""
    async with open_without_keys(settings, World(), exclusive=True, accept_missing_commits=True):
        pass


async def accept_lost_keys(settings: Settings) -> Sequence[str]:
    """Let the service start without the keys that are missing; their ids."""
    ring = () if missing_key_file(settings) else load_key_ring(settings, random_bytes=os.urandom).keys.keys()
    async with open_without_keys(settings, World()) as store:
        return await store.write(lambda tx: accept_loss(tx, ring))


def open_without_keys(
    settings: Settings, world: World, *, exclusive: bool = False, accept_missing_commits: bool = False
) -> AbstractAsyncContextManager[Store]:
    """The store for questions that need no key: whatever is sealed stays closed."""
    sealer = AesGcmSealer({"none": os.urandom(KEY_BYTES)}, current="none", random=world.random_bytes)
    return open_store(
        settings.database_url,
        clock=world.clock,
        sealer=sealer,
        exclusive=exclusive,
        accept_missing_commits=accept_missing_commits,
    )
