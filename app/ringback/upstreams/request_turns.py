"""Turns of the requests that clients send through to an upstream.

The runner limits the concurrent calls of an upstream and shares them fairly. A request that is only passed on has no call: so
each principal has some of these requests at the upstream at once, and its further ones wait. Without that, the requests of one
principal would fill a server that works off one message after the other, and the calls of all others would wait behind them.
"""

import asyncio
from typing import Final
from weakref import WeakValueDictionary

from ringback.domain.principal import Principal

SHARE_DIVISOR: Final = 2
"""Of the concurrent calls of the upstream: a principal has at most half as many requests there at once."""


class RequestTurns:
    def __init__(self) -> None:
        self._turns: WeakValueDictionary[tuple[str, Principal], asyncio.Semaphore] = WeakValueDictionary()

    def get_turns(self, upstream: str, principal: Principal, *, max_concurrent: int) -> asyncio.Semaphore:
        """The turns of this principal, for `async with`. They are kept while a request has or awaits one of them."""
        share = max(1, max_concurrent // SHARE_DIVISOR)
        return self._turns.setdefault((upstream, principal), asyncio.Semaphore(share))
