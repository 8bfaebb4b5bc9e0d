"""Loads a service's key ring and checks that it decrypts the stored data."""

import logging
import os
from collections.abc import Callable, Sequence

from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.keyring import key_ring_source, load_key_ring, missing_key_file
from ringback.service_database.keyless_store import open_store_without_keys
from ringback.services import sealing_keys
from ringback.services.sealing_keys import find_missing_keys, missing_keys_detail, register_current_key
from ringback.settings import Settings
from ringback.signing.sealing import AesGcmSealer, KeyRing
from ringback.storage.urls import find_sqlite_path

log = logging.getLogger(__name__)


async def load_service_key_ring(settings: Settings, *, clock: Clock, random_bytes: Callable[[int], bytes]) -> KeyRing:
    """The key ring from the settings or the key file. Creates the key file unless the database needs an earlier one.

    Raises `StoreUnavailable` when the key file is missing and the database holds data encrypted with its keys.
    """
    file, database = missing_key_file(settings), find_sqlite_path(settings.database_url)
    if lacks_key_file(settings):
        async with open_store_without_keys(settings, clock=clock, random_bytes=random_bytes) as store:
            await require_no_sealed_data(store, settings)
    if file is None and settings.secret_keys is None and database is not None and not database.exists():
        log.warning(
            "database.missing_beside_keys", extra={"database": str(database.absolute()), "next": "a new one is made"}
        )
    return load_key_ring(settings, random_bytes=random_bytes)


def lacks_key_file(settings: Settings) -> bool:
    """Whether there is a database and no key ring here. The service may have its keys in RINGBACK_SECRET_KEYS."""
    database = find_sqlite_path(settings.database_url)
    return missing_key_file(settings) is not None and database is not None and database.exists()


async def require_no_sealed_data(store: Store, settings: Settings) -> None:
    """Raise `StoreUnavailable` if a key that is not here sealed stored data."""
    if missing := await find_missing_keys(store, ()):
        raise StoreUnavailable(missing_keys_detail(missing, key_ring_source(settings)), needs_operator=True)


async def require_key_ring(store: Store, ring: KeyRing, settings: Settings) -> None:
    """Raise `StoreUnavailable` unless the ring has every key that encrypted stored data, and the other nodes' keys."""
    source, values = key_ring_source(settings), ring.compute_check_values()
    await register_current_key(store, values, current=ring.current_id, source=source)


async def accept_lost_keys(settings: Settings) -> Sequence[str]:
    """Let the service start without the missing keys. Returns their ids."""
    key_ids = () if missing_key_file(settings) else load_key_ring(settings, random_bytes=os.urandom).keys.keys()
    async with open_store_without_keys(settings) as store:
        return await sealing_keys.accept_lost_keys(store, key_ids)


def build_sealer(ring: KeyRing, settings: Settings, *, random_bytes: Callable[[int], bytes]) -> AesGcmSealer:
    return AesGcmSealer(
        ring.keys,
        current=ring.current_id,
        random_bytes=random_bytes,
        seals_content=settings.seal == "all",
    )
