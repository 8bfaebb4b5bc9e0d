"""Handling without a store: the handler runs while the sender waits for the response."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from ringback.receiver.deduplicator import Deduplicator
from ringback.receiver.envelopes import Callback
from ringback.receiver.handler_runs import HandlerTurns, outlast_handler
from ringback.receiver.handling import Envelope, KeepForWaiters, NotReady, OrderKey, ReceivedMessage

DEDUPLICATED_MESSAGES_MAX: Final = 10_000
"""Messages whose repetition is recognised: about 5 MB."""
TURN_WAIT_SECONDS: Final = 8.0
"""How long a request waits before its handler starts. Ringback ends an attempt after 10 s; a callback whose handler has not
started by then should come again later, and not be handled while its sender repeats it."""


class DirectHandling:
    """Acknowledges a message after its handler. Copies are recognised in the memory of this process."""

    def __init__(
        self,
        dispatch: Callable[[Envelope], Awaitable[None]],
        *,
        keep_for_waiters: KeepForWaiters,
        turns: HandlerTurns,
        order_key: OrderKey,
        cursor: str | None = None,
        turn_wait_seconds: float = TURN_WAIT_SECONDS,
    ) -> None:
        self._dispatch = dispatch
        self._keep_for_waiters = keep_for_waiters
        self._turns = turns
        self._order_key = order_key
        self._cursor = cursor
        self._turn_wait_seconds = turn_wait_seconds
        self._deduplicator = Deduplicator(capacity=DEDUPLICATED_MESSAGES_MAX)
        self._last_number = 0

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def accept(self, message: ReceivedMessage) -> None:
        limit = asyncio.timeout(self._turn_wait_seconds)
        try:
            async with limit:
                await self._deduplicator.run_unless_handled(
                    message.message_id, message.scope, lambda: self._run_handler(message, limit)
                )
        except TimeoutError:
            if not limit.expired():
                raise
            raise NotReady(reason="Earlier callbacks of this session are still being handled.") from None

    def forget_waitable(self, number: int) -> None: ...

    async def read_cursor(self) -> str | None:
        return self._cursor

    async def save_cursor(self, cursor: str) -> None:
        self._cursor = cursor

    async def _run_handler(self, message: ReceivedMessage, limit: asyncio.Timeout) -> None:
        envelope = message.envelope
        if not isinstance(envelope, Callback):  # without a turn: handling a gap hands over callbacks, which need turns
            limit.reschedule(None)
            async with outlast_handler():
                await self._dispatch(envelope)
            return
        async with self._turns.acquire_turn(self._order_key(envelope)):
            limit.reschedule(None)
            await self._dispatch(envelope)
        self._last_number += 1
        self._keep_for_waiters(envelope, self._last_number, len(message.body))
