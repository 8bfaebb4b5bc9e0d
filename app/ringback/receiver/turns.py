"""Which handlers may run at the same time: one for each order key, and a limited number in all.

Two callbacks of one session, handled at once, resume one agent twice: LangGraph then loses an answer without an error.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ringback.key_locks import KeyLocks
from ringback.receiver.handler_runs import outlast_handler


class HandlerTurns:
    """Handlers of one key run one after the other, in the order of their requests for a turn."""

    def __init__(self, *, handlers_max: int) -> None:
        if handlers_max < 1:
            raise ValueError("handlers_max must be at least 1: the number of handlers that run at the same time.")
        self._permits = asyncio.Semaphore(handlers_max)
        self._locks = KeyLocks()

    @asynccontextmanager
    async def acquire_turn(self, key: str) -> AsyncGenerator[None]:
        """Wait for the key first: a waiting session then holds no permit that another session could use.

        So does a session whose handler ignores its cancellation: it keeps the key until that handler ends.
        """
        async with self._locks.hold(key), outlast_handler(), self._permits:
            yield
