"""Opens a service's store and its API keys beside the service."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ringback.domain.clock import SystemClock
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store
from ringback.service_database.key_ring import (
    build_sealer,
    lacks_key_file,
    load_service_key_ring,
    require_no_sealed_data,
)
from ringback.service_database.keyless_store import open_store_without_keys
from ringback.services.access.api_keys import ApiKeys
from ringback.settings import Settings
from ringback.storage.open import open_store


@asynccontextmanager
async def open_api_keys(settings: Settings) -> AsyncGenerator[ApiKeys]:
    """The API keys of a service's database. The service may run meanwhile."""
    async with open_shared_store(settings) as store:
        yield ApiKeys(store=store, ids=IdGenerator(SystemClock(), random_bytes=os.urandom))


@asynccontextmanager
async def open_shared_store(settings: Settings) -> AsyncGenerator[Store]:
    """A service's store, for commands that read it or write a row. The service may run meanwhile.

    Beside a database, only the service makes a key file: a command may lack the RINGBACK_SECRET_KEYS that the service has, and
    backups would take its file for the service's keys.
    """
    clock = SystemClock()
    if lacks_key_file(settings):
        async with open_store_without_keys(settings, clock=clock) as store:
            await require_no_sealed_data(store, settings)
            yield store
        return
    ring = await load_service_key_ring(settings, clock=clock, random_bytes=os.urandom)
    sealer = build_sealer(ring, settings, random_bytes=os.urandom)
    async with open_store(settings.database_url, clock=clock, sealer=sealer, exclusive=False) as store:
        yield store
