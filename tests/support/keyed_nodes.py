"""Nodes of one database that differ in the keys that they have."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from ringback.domain.clock import Clock
from ringback.services.sealing_keys import register_current_key
from ringback.signing.sealing import KEY_BYTES, AesGcmSealer
from ringback.storage.open import open_store
from tests.support.engine import Engine

KEYS: Final = {name: name[:1].encode() * KEY_BYTES for name in ("old", "new")}


@asynccontextmanager
async def node_with(url: str, clock: Clock, *names: str, seals_content: bool = False) -> AsyncGenerator[Engine]:
    """A node that has started with these keys, newest first."""
    sealer = AesGcmSealer(
        {name: KEYS[name] for name in names}, current=names[0], random_bytes=os.urandom, seals_content=seals_content
    )
    async with open_store(url, clock=clock, sealer=sealer, exclusive=True) as store:
        await register_current_key(store, sealer.check_values, current=names[0], source="RINGBACK_SECRET_KEYS")
        yield Engine(store, clock)
