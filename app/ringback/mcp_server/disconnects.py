"""What becomes of a call whose client goes away while it waits.

    2026-07-28   closing the stream ends the request (Streamable HTTP, Cancellation), so the call is cancelled; unless this
                 request takes tasks or speaks of us: its client knows that calls outlive it; or the operator says `keep`
    before       a lost connection means nothing; `notifications/cancelled` cancels the call that its request waits for

Once a task or a pending result was answered, only cancelling it cancels it.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, TypeVar

import anyio

from ringback.domain.errors import RingbackError
from ringback.domain.ids import CallId
from ringback.mcp_server import meta
from ringback.mcp_server.exchange import TASKS, Exchange
from ringback.mcp_server.gateway import Gateway

T = TypeVar("T")

REMEMBERED_MAX: Final = 10_000
"""Requests that wait, or were cut off and may still be cancelled; of more, the oldest are forgotten: their calls go on."""


def ends_with_its_stream(gateway: Gateway, exchange: Exchange) -> bool:
    return (
        exchange.modern
        and not gateway.config.keep_on_disconnect
        and not exchange.declares(TASKS)
        and not meta.speaks_of_us(exchange.meta)
    )


@dataclass(slots=True)
class Waiting:
    """A request that waits for a call."""

    call_id: CallId | None = None
    cancelled: bool = False
    """Told before its call was known; whoever starts the call cancels it then."""


class WaitingRequests:
    """Of sessions of before 2026-07-28, by session and request.

    The SDK cuts the handler of a cancelled request off by itself, before or after it tells us: so an entry stays when its
    handler is cut off, and goes when it has answered or was cancelled.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._waiting: OrderedDict[tuple[str, str], Waiting] = OrderedDict()

    @contextmanager
    def request(self, exchange: Exchange) -> Generator[Waiting]:
        waiting, key = Waiting(), _key(exchange, exchange.context.request_id)
        if exchange.modern:
            yield waiting
            return
        self._waiting[key] = waiting
        if len(self._waiting) > REMEMBERED_MAX:
            self._waiting.popitem(last=False)
        try:
            yield waiting
        except Exception:  # any but the one that cuts it off
            self._waiting.pop(key, None)
            raise
        self._waiting.pop(key, None)

    async def cancelled(self, exchange: Exchange) -> None:
        """Handles `notifications/cancelled`."""
        request_id = (exchange.context.params or {}).get("requestId")
        waiting = self._waiting.pop(_key(exchange, request_id), None)
        if waiting is None:
            return
        waiting.cancelled = True
        if waiting.call_id is not None:
            await cancel(self._gateway, exchange, waiting.call_id)


async def uncut(work: Awaitable[T]) -> T:
    """What `work` gives; who waits for it is cut off only after that."""
    with anyio.CancelScope(shield=True):
        return await work
    raise AssertionError("nobody cancels the scope")


async def cancel(gateway: Gateway, exchange: Exchange, call_id: CallId) -> None:
    """For a client that is not there to hear how that went."""
    with suppress(RingbackError):  # it has expired, or the store cannot be written: its deadline ends it
        await gateway.calls.cancel(exchange.caller, call_id)


async def leave(gateway: Gateway, exchange: Exchange, call_id: CallId) -> None:
    """Note that nobody stays for the result, so that a callback is not taken for old news."""
    with suppress(RingbackError):
        await gateway.calls.leave(exchange.caller, call_id)


def _key(exchange: Exchange, request_id: object) -> tuple[str, str]:
    """7 and "7" are one id, as they are to the SDK, which cuts the handler of either off."""
    return exchange.session_id, str(request_id)
