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
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.request_context import TASKS_EXTENSION, RequestContext

T = TypeVar("T")

WAITING_REQUESTS_MAX: Final = 10_000
"""Requests that wait, or were cut off and may still be cancelled; of more, the oldest are forgotten: their calls go on."""


def is_cancelled_on_disconnect(gateway: Gateway, context: RequestContext) -> bool:
    return (
        context.is_modern
        and not gateway.config.keeps_call_on_disconnect
        and not context.declares_extension(TASKS_EXTENSION)
        and not meta.has_ringback_key(context.meta)
    )


@dataclass(slots=True)
class WaitingRequest:
    """A request that waits for a call."""

    call_id: CallId | None = None
    is_cancelled: bool = False
    """Told before its call was known; whoever starts the call cancels it then."""


class WaitingRequests:
    """Of sessions of before 2026-07-28, by session and request.

    The SDK cuts the handler of a cancelled request off by itself, before or after it tells us: so an entry stays when its
    handler is cut off, and goes when it has answered or was cancelled.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._requests: OrderedDict[tuple[str, str], WaitingRequest] = OrderedDict()

    @contextmanager
    def track_request(self, context: RequestContext) -> Generator[WaitingRequest]:
        waiting, key = WaitingRequest(), _get_request_key(context, context.sdk_context.request_id)
        if context.is_modern:
            yield waiting
            return
        self._requests[key] = waiting
        if len(self._requests) > WAITING_REQUESTS_MAX:
            self._requests.popitem(last=False)
        try:
            yield waiting
        except Exception:  # any but the one that cuts it off
            self._requests.pop(key, None)
            raise
        self._requests.pop(key, None)

    async def handle_cancelled(self, context: RequestContext) -> None:
        """Handles `notifications/cancelled`."""
        request_id = (context.sdk_context.params or {}).get("requestId")
        waiting = self._requests.pop(_get_request_key(context, request_id), None)
        if waiting is None:
            return
        waiting.is_cancelled = True
        if waiting.call_id is not None:
            await cancel_call(self._gateway, context, waiting.call_id)


async def shield_from_cancellation(awaitable: Awaitable[T]) -> T:
    """What `work` gives; who waits for it is cut off only after that."""
    with anyio.CancelScope(shield=True):
        return await awaitable
    raise AssertionError("nobody cancels the scope")


async def cancel_call(gateway: Gateway, context: RequestContext, call_id: CallId) -> None:
    """For a client that is not there to hear how that went."""
    with suppress(RingbackError):  # it has expired, or the store cannot be written: its deadline ends it
        await gateway.calls.cancel_call(context.caller, call_id)


async def mark_call_unattended(gateway: Gateway, context: RequestContext, call_id: CallId) -> None:
    """Note that nobody stays for the result, so that a callback is not taken for old news."""
    with suppress(RingbackError):
        await gateway.calls.mark_unattended(context.caller, call_id)


def _get_request_key(context: RequestContext, request_id: object) -> tuple[str, str]:
    """7 and "7" are one id, as they are to the SDK, which cuts the handler of either off."""
    return context.mcp_session_id, str(request_id)
