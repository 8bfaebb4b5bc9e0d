"""Keeps this node's current key registered while it seals with it.

A node that starts without a new key removes its row as long as it has sealed nothing (`sealing_keys`): it cannot know that
another node is about to seal with it. Without the row, nodes that lack the key would give up what they cannot read.
"""

import asyncio
from typing import Final

from ringback.domain.encryption import Sealer
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.signals import SEALING_KEYS_TOPIC
from ringback.waits import notify_when_set

ROUND_SECONDS: Final = 30.0
"""How long a lost signal can leave the key without its row."""


class KeyRegistration:
    name = "key-registration"

    def __init__(self, *, store: Store, sealer: Sealer) -> None:
        self._store = store
        self._sealer = sealer

    async def run(self, stop: asyncio.Event) -> None:
        if self._store.is_exclusive:
            await stop.wait()  # there is no other node
        with self._store.signals.listen(SEALING_KEYS_TOPIC) as waiter:
            async with notify_when_set(waiter, stop):
                while not stop.is_set():
                    await self.run_once()
                    await waiter.wait(ROUND_SECONDS)

    async def run_once(self) -> None:
        try:
            if not await self._store.read(self._is_registered):
                await self._store.write(self._register)
        except StoreUnavailable:
            return

    async def _is_registered(self, tx: Transaction) -> bool:
        return self._sealer.current_key_id in await tx.sealing_keys.list_all()

    async def _register(self, tx: Transaction) -> None:
        key_id = self._sealer.current_key_id
        await tx.sealing_keys.add(key_id, self._sealer.check_values[key_id])
