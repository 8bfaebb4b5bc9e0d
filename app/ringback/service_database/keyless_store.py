"""Opens a service's store for work that needs no key."""

import os
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from ringback.domain.clock import Clock, SystemClock
from ringback.domain.ports import Store
from ringback.settings import Settings
from ringback.signing.sealing import KEY_BYTES, AesGcmSealer
from ringback.storage.migrations import SchemaState
from ringback.storage.open import open_store
from ringback.storage.schema import read_schema_state
from ringback.storage.urls import require_sqlite_path


async def accept_restore(settings: Settings) -> None:
    """Accept a SQLite database whose last commits are missing, or that was moved to another database.

    Raises `StoreUnavailable` while a service has it open, and for PostgreSQL, which would only be migrated.
    """
    require_sqlite_path(settings.database_url)
    async with open_store_without_keys(settings, exclusive=True, accept_missing_commits=True):
        pass


async def migrate_database(settings: Settings) -> SchemaState:
    """Apply the missing migrations; return what was missing. Raises `StoreUnavailable` while a service has the SQLite file.

    A standby is refused as at the start of the service, also one that lacks nothing.
    """
    state = await read_schema_state(settings.database_url, to_migrate=True)
    if state.missing:
        async with open_store_without_keys(settings, exclusive=True):
            pass
    return state


def open_store_without_keys(
    settings: Settings,
    *,
    clock: Clock | None = None,
    random_bytes: Callable[[int], bytes] = os.urandom,
    exclusive: bool = False,
    accept_missing_commits: bool = False,
) -> AbstractAsyncContextManager[Store]:
    """The store for work that needs no key. It cannot decrypt anything."""
    sealer = AesGcmSealer({"none": os.urandom(KEY_BYTES)}, current="none", random_bytes=random_bytes)
    return open_store(
        settings.database_url,
        clock=clock or SystemClock(),
        sealer=sealer,
        exclusive=exclusive,
        accept_missing_commits=accept_missing_commits,
    )
