"""Finds the call that an earlier sending of the same request started, for a legacy client that lost its stream.

The id of the call is chosen before the request is handled, and it is part of the ids of the stream's events. So the call is
found in any process, and a request whose call was never stored starts nothing when it is resumed. Its client is advised to send
it again, so the first sending must not start a call after that: in this process it is waited for, and for other nodes the start
is given up in the store (`services.calls.given_up_starts`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

from mcp.shared.exceptions import MCPError

from ringback.domain.call import Call
from ringback.domain.errors import NotFound, QuotaExceeded, StoreUnavailable
from ringback.domain.ids import CallId
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.request_context import RequestContext
from ringback.schemas.jsonrpc_errors import UNAVAILABLE_CODE

T = TypeVar("T")

OTHER_NODE_PAUSES: Final = (0.5, 1.0, 2.0)
"""Seconds between looks for a call that another node may be starting. After them the start is given up: should it be slower
than that, for example because the host of its callback is resolved, it is refused when it is to be stored."""


STORE_PAUSE_SECONDS: Final = 1.0
"""Between two attempts while the store is unavailable, or the principal has no starts left."""
_NOT_READABLE: Final = (
    "The connection was lost, and whether this request has started a call cannot be read now. Look for it with "
    "ringback_list_calls before you send the request again."
)


class ResumedCalls:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._starting: dict[CallId, asyncio.Event] = {}

    @contextmanager
    def track_start(self, context: RequestContext) -> Generator[None]:
        """While entered, the request may still start its call: `find_call` waits for that."""
        if context.stream_request is None:
            yield
            return
        call_id = context.stream_request.call_id
        self._starting[call_id] = is_settled = asyncio.Event()
        try:
            yield
        finally:
            del self._starting[call_id]
            is_settled.set()

    async def find_call(self, context: RequestContext) -> Call:
        """The call that the resumed request started. Raises -32000 if it started none; then nothing runs."""
        request = context.stream_request
        if request is not None:
            if is_settled := self._starting.get(request.call_id):
                await is_settled.wait()
            for wait_seconds in (0.0, *self._pauses_for_other_nodes()):
                await self._gateway.clock.sleep(wait_seconds)
                with suppress(NotFound):
                    return await self._read_call(context, request.call_id)
            if self._gateway.node_signals.has_other_nodes and (
                call := await self._give_up_start(context, request.call_id)
            ):
                return call
        # An idempotency key is no substitute: it may belong to an earlier call with another tool or other arguments.
        raise MCPError(
            UNAVAILABLE_CODE,
            "The connection was lost, and this request has started no call. Send the request again; with an idempotency key "
            "that was used before you get the call of that key.",
        )

    async def _read_call(self, context: RequestContext, call_id: CallId) -> Call:
        return await self._retry(lambda: self._gateway.calls.get_for_waiting(context.caller, call_id))

    async def _give_up_start(self, context: RequestContext, call_id: CallId) -> Call | None:
        return await self._retry(lambda: self._gateway.calls.give_up_start(context.caller, call_id))

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Wait while the attempt is refused: after an error the client sends its request again, and the call may run."""
        clock, config = self._gateway.clock, self._gateway.config
        ends_at = clock.monotonic() + config.wait_seconds_max
        while True:
            try:
                return await attempt()
            except (StoreUnavailable, QuotaExceeded):
                if clock.monotonic() >= ends_at or self._gateway.lifecycle.shutdown_event.is_set():
                    raise MCPError(UNAVAILABLE_CODE, _NOT_READABLE) from None
            await clock.sleep(STORE_PAUSE_SECONDS)

    def _pauses_for_other_nodes(self) -> Sequence[float]:
        """Another node may be about to commit the start: this one cannot see that, so it looks again for a while."""
        return OTHER_NODE_PAUSES if self._gateway.node_signals.has_other_nodes else ()
