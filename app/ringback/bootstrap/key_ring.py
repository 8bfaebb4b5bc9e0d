"""Loads a service's key ring and checks that it decrypts the stored data."""

import logging
import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from ringback.bootstrap.environment import Environment
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.keyring import key_ring_source, load_key_ring, missing_key_file
from ringback.services import sealing_keys
from ringback.services.sealing_keys import find_missing_keys, missing_keys_detail, register_current_key
from ringback.settings import Settings
from ringback.signing.sealing import KEY_BYTES, AesGcmSealer, KeyRing
from ringback.storage.migrations import SchemaState
from ringback.storage.open import open_store
from ringback.storage.schema import read_schema_state
from ringback.storage.urls import find_sqlite_path

log = logging.getLogger(__name__)


async def load_service_key_ring(settings: Settings, environment: Environment) -> KeyRing:
    """The key ring from the settings or the key file. Creates the key file unless the database needs an earlier one.

    Raises `StoreUnavailable` when the key file is missing and the database holds data encrypted with its keys.
    """
    file, database = missing_key_file(settings), find_sqlite_path(settings.database_url)
    if file is not None and database is not None and database.exists():
        async with open_store_without_keys(settings, environment) as store:
            missing = await store.read(lambda tx: find_missing_keys(tx, ()))
        if missing:
            raise StoreUnavailable(missing_keys_detail(missing, str(file)), needs_operator=True)
    if file is None and settings.secret_keys is None and database is not None and not database.exists():
        log.warning(
            "database.missing_beside_keys", extra={"database": str(database.absolute()), "next": "a new one is made"}
        )
    return load_key_ring(settings, random_bytes=environment.random_bytes)


async def require_key_ring(store: Store, ring: KeyRing, settings: Settings) -> None:
    """Raise `StoreUnavailable` unless the ring has every key that encrypted stored data, and the other nodes' keys."""
    source, values = key_ring_source(settings), ring.compute_check_values()
    await store.write(lambda tx: register_current_key(tx, values, current=ring.current_id, source=source))


async def accept_restore(settings: Settings) -> None:
    """Accept a database whose last commits are missing. Raises `StoreUnavailable` while a service has it open."""
    async with open_store_without_keys(settings, Environment(), exclusive=True, accept_missing_commits=True):
        pass


async def migrate_database(settings: Settings) -> SchemaState:
    """Apply the missing migrations; return what was missing. Raises `StoreUnavailable` while a service has the SQLite file."""
    state = await read_schema_state(settings.database_url)
    if state.missing:
        async with open_store_without_keys(settings, Environment(), exclusive=True):
            pass
    return state


async def accept_lost_keys(settings: Settings) -> Sequence[str]:
    """Let the service start without the missing keys. Returns their ids."""
    key_ids = () if missing_key_file(settings) else load_key_ring(settings, random_bytes=os.urandom).keys.keys()
    async with open_store_without_keys(settings, Environment()) as store:
        return await store.write(lambda tx: sealing_keys.accept_lost_keys(tx, key_ids))


def open_store_without_keys(
    settings: Settings, environment: Environment, *, exclusive: bool = False, accept_missing_commits: bool = False
) -> AbstractAsyncContextManager[Store]:
    """The store for work that needs no key. It cannot decrypt anything."""
    sealer = AesGcmSealer({"none": os.urandom(KEY_BYTES)}, current="none", random_bytes=environment.random_bytes)
    return open_store(
        settings.database_url,
        clock=environment.clock,
        sealer=sealer,
        exclusive=exclusive,
        accept_missing_commits=accept_missing_commits,
    )
