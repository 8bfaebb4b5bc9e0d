"""What happens to a call when its client disconnects or cancels while it waits.

    modern   closing the stream ends the request (Streamable HTTP, Cancellation) and cancels the call, unless the request
             declares tasks or carries a `ringback/` key (the client knows that calls outlive it), or the operator configures
             `keep`
    legacy   a lost connection changes nothing; `notifications/cancelled` cancels the call that the request waits for

After a task or pending result was returned, only an explicit cancellation cancels the call.
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
"""Requests that wait, or were interrupted and may still be cancelled; beyond this the oldest are dropped, and their calls
continue.
"""


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
    """The cancellation came before the call id was known; starting the call then cancels it."""


class WaitingRequests:
    """The waiting requests of legacy sessions, by session and request id.

    The SDK itself cancels the handler of a cancelled request, before or after it calls us. So an entry stays when its handler
    is cancelled, and is removed after a response or a cancellation.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._requests: OrderedDict[tuple[str, str], WaitingRequest] = OrderedDict()

    @contextmanager
    def track_request(self, context: RequestContext) -> Generator[WaitingRequest]:
        waiting, key = WaitingRequest(), _get_request_key(context, context.request_id)
        if context.is_modern:
            yield waiting
            return
        self._requests[key] = waiting
        if len(self._requests) > WAITING_REQUESTS_MAX:
            self._requests.popitem(last=False)
        try:
            yield waiting
        except Exception:  # any exception except cancellation
            self._remove_request(key, waiting)
            raise
        self._remove_request(key, waiting)

    def _remove_request(self, key: tuple[str, str], waiting: WaitingRequest) -> None:
        """Remove the entry, unless the client has resumed the request meanwhile."""
        if self._requests.get(key) is waiting:
            del self._requests[key]

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
    """Await to the end; a cancellation takes effect after that."""
    with anyio.CancelScope(shield=True):
        return await awaitable
    raise AssertionError("a shielded scope is never cancelled")


async def cancel_call(gateway: Gateway, context: RequestContext, call_id: CallId) -> None:
    """Cancel a call without reporting errors: its client has disconnected."""
    with suppress(RingbackError):  # the call has expired, or the store is unavailable: then its deadline ends it
        await gateway.calls.cancel_call(context.caller, call_id)


async def mark_call_unattended(gateway: Gateway, context: RequestContext, call_id: CallId) -> None:
    """Mark that no client waits for the result, so that its callback counts as news."""
    with suppress(RingbackError):
        await gateway.calls.mark_unattended(context.caller, call_id)


def _get_request_key(context: RequestContext, request_id: object) -> tuple[str, str]:
    """The key of a request. 7 and "7" are the same id, as for the SDK, which cancels the handlers of both."""
    return context.mcp_session_id, str(request_id)
