"""Opens a service's store and its API keys beside the service."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ringback.domain.clock import SystemClock
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store
from ringback.service_database.key_ring import build_sealer, load_service_key_ring
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
    """A service's store, for commands that read it or write a row. The service may run meanwhile."""
    clock = SystemClock()
    ring = await load_service_key_ring(settings, clock=clock, random_bytes=os.urandom)
    sealer = build_sealer(ring, settings, random_bytes=os.urandom)
    async with open_store(settings.database_url, clock=clock, sealer=sealer, exclusive=False) as store:
        yield store
