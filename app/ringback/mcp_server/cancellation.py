"""What happens to a call when its client disconnects or cancels while it waits.

    a disconnect    changes nothing. In 2026-07-28, closing the stream ends the request and leaves the call (`on_disconnect:
                    keep`). With `cancel` it also cancels the call, unless the request declares tasks or has an option of
                    Ringback (`call_options`): such a client knows that a call outlives its stream. An idempotency key is
                    such an option: its client sends the request again after a lost connection, as `ringback mcp` does, and
                    would find the call cancelled
    legacy          `notifications/cancelled` cancels the call that the request waits for
    modern          over HTTP, the specification has no message for it. A client cancels the call by its key, with
                    `ringback/cancelRequest` (`protocol.cancel_keys`). `ringback mcp` does so for its client's
                    `notifications/cancelled`

The decision to keep: "Closing the SSE response stream is the cancellation signal. The server MUST treat a client disconnect as
cancellation of that request" (MCP 2026-07-28, Cancellation, Transport-Specific Cancellation). The request ends at once, as the
specification says. What it started is a durable call, as with a task, and a closed stream does not show who closed it: clients
close streams after five seconds of waiting, and networks and laptops do too. A cancelled call cannot be taken back.

After a task or pending result was returned, only an explicit cancellation cancels the call.

A cancellation may reach another node than the one where its request waits. That node then notifies the others, once. If the
notification is lost, or comes before the request or after its stream was lost, the call continues. A cancellation of the call
itself is stored, so no node misses it.
"""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from ringback.domain.call import Call
from ringback.domain.clock import Clock
from ringback.domain.errors import RingbackError
from ringback.domain.ids import CallId
from ringback.domain.principal import Principal
from ringback.domain.signals import request_cancelled_topic
from ringback.domain.upstreams import DisconnectAction
from ringback.mcp_server.call_options import mentions_ringback
from ringback.mcp_server.gateway import Gateway, Result
from ringback.mcp_server.request_context import TASKS_EXTENSION, RequestContext
from ringback.protocol.cancel_keys import CANCEL_KEY_HEADER, CANCEL_KEY_LENGTH_MAX

T = TypeVar("T")

WAITING_REQUESTS_MAX: Final = 10_000
"""Requests of one principal that wait, or were interrupted and may still be cancelled; beyond this its oldest are dropped, and
their calls continue.
"""
EARLY_CANCELLATIONS_MAX: Final = 1_000
"""Cancellations of one principal that arrived before their request, which travels on another connection. More are ignored."""
EARLY_CANCELLATION_SECONDS: Final = 10.0
"""How long such a cancellation waits for its request. Most that find none come after its end instead, and would cancel the call
of a later request with the same id: clients must not use an id again, but some do.
"""


class RequestKey(NamedTuple):
    principal: Principal
    session_id: str
    """Empty for a modern request."""
    name: str
    """The id of a legacy request, or its hash if it is long; the cancel key of a modern one."""


class EntriesByPrincipal(Generic[T]):
    """Entries by request, with a limit for each principal: the requests of one displace no requests of another."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._entries: dict[Principal, OrderedDict[RequestKey, T]] = {}

    def put(self, key: RequestKey, value: T) -> None:
        entries = self._entries.setdefault(key.principal, OrderedDict())
        entries[key] = value
        if len(entries) > self._entries_max:
            entries.popitem(last=False)

    def get(self, key: RequestKey) -> T | None:
        entries = self._entries.get(key.principal)
        return None if entries is None else entries.get(key)

    def pop(self, key: RequestKey) -> T | None:
        entries = self._entries.get(key.principal)
        if entries is None:
            return None
        value = entries.pop(key, None)
        if not entries:
            del self._entries[key.principal]
        return value


class EarlyCancellations:
    """Cancellations whose request has not arrived, for `EARLY_CANCELLATION_SECONDS`: most have none that could."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._cancelled_at: OrderedDict[RequestKey, float] = OrderedDict()
        """Oldest first. A dict would look for the oldest one behind all places of those that were removed."""
        self._counts = Counter[Principal]()

    def __len__(self) -> int:
        return len(self._cancelled_at)

    def add(self, key: RequestKey) -> None:
        self._drop_expired()
        self._remove(key)
        if self._counts[key.principal] < EARLY_CANCELLATIONS_MAX:
            self._cancelled_at[key] = self._clock.monotonic()
            self._counts[key.principal] += 1

    def pop(self, key: RequestKey) -> bool:
        """Whether the request was cancelled shortly before it arrived."""
        self._drop_expired()
        return self._remove(key)

    def _drop_expired(self) -> None:
        kept_from = self._clock.monotonic() - EARLY_CANCELLATION_SECONDS
        while self._cancelled_at and next(iter(self._cancelled_at.values())) < kept_from:
            self._remove(next(iter(self._cancelled_at)))

    def _remove(self, key: RequestKey) -> bool:
        if self._cancelled_at.pop(key, None) is None:
            return False
        self._counts[key.principal] -= 1
        if not self._counts[key.principal]:
            del self._counts[key.principal]
        return True


def is_cancelled_on_disconnect(gateway: Gateway, context: RequestContext, call: Call) -> bool:
    action = gateway.catalog.get_tool_config(call.upstream, call.tool).on_disconnect or gateway.config.on_disconnect
    return (
        context.is_modern
        and action is DisconnectAction.CANCEL
        and not context.declares_extension(TASKS_EXTENSION)
        and not mentions_ringback(context)
    )


@dataclass(slots=True)
class WaitingRequest:
    """A request that waits for a call."""

    call_id: CallId | None = None
    is_cancelled: bool = False
    """The cancellation came before the call id was known; starting the call then cancels it."""


class WaitingRequests:
    """The waiting requests that their client can cancel, by their keys.

    The SDK itself cancels the handler of a cancelled request, before or after it calls us. So an entry stays when its handler
    is cancelled, and is removed after a response or a cancellation.
    """

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._requests = EntriesByPrincipal[WaitingRequest](WAITING_REQUESTS_MAX)
        self._early_cancellations = EarlyCancellations(gateway.clock)

    @contextmanager
    def track_request(self, context: RequestContext) -> Generator[WaitingRequest]:
        key = _get_modern_key(context) if context.is_modern else _get_legacy_key(context, context.request_id)
        if key is None:
            yield WaitingRequest()
            return
        waiting = WaitingRequest(is_cancelled=self._early_cancellations.pop(key))
        self._requests.put(key, waiting)

        def cancel_for_other_node() -> None:
            if self._requests.get(key) is waiting:
                self._gateway.background_tasks.spawn(self._cancel_for_other_node(context, key))

        with self._gateway.node_signals.subscribe(
            cancel_for_other_node, request_cancelled_topic(*key), also_after_losses=False
        ):
            try:
                yield waiting
            except Exception:  # any exception except cancellation
                self._remove_request(key, waiting)
                raise
            self._remove_request(key, waiting)

    def _remove_request(self, key: RequestKey, waiting: WaitingRequest) -> None:
        """Remove the entry, unless the client has resumed the request meanwhile."""
        if self._requests.get(key) is waiting:
            self._requests.pop(key)

    async def handle_cancelled(self, context: RequestContext) -> None:
        """Handles `notifications/cancelled` of a legacy session."""
        request_id = (context.sdk_context.params or {}).get("requestId")
        await self._cancel_request(context, _get_legacy_key(context, request_id))

    async def cancel_request(self, context: RequestContext, params: types.RequestParams) -> Result:  # noqa: ARG002 - a MethodHandler
        """Handles `ringback/cancelRequest`: cancels the call that the modern request with the same cancel key waits for."""
        key = _get_modern_key(context)
        if key is None:
            raise MCPError(
                INVALID_PARAMS, "Send the header Ringback-Cancel-Key of the request that is to be cancelled."
            )
        await self._cancel_request(context, key)
        return {}

    async def _cancel_request(self, context: RequestContext, key: RequestKey) -> None:
        if await self._cancel_waiting(context, key):
            return
        self._early_cancellations.add(key)
        if self._gateway.node_signals.has_other_nodes:
            with suppress(RingbackError):  # the store is unavailable: the call continues
                await self._gateway.node_signals.notify_nodes(request_cancelled_topic(*key))

    async def _cancel_for_other_node(self, context: RequestContext, key: RequestKey) -> None:
        await self._cancel_waiting(context, key)

    async def _cancel_waiting(self, context: RequestContext, key: RequestKey) -> bool:
        """Cancel the call of the request if it waits on this node."""
        waiting = self._requests.pop(key)
        if waiting is None:
            return False
        waiting.is_cancelled = True
        if waiting.call_id is not None:
            await cancel_call(self._gateway, context, waiting.call_id)
        return True


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
    """Mark that no client waits for the result, so that its callback is the first report of the end."""
    with suppress(RingbackError):
        await gateway.calls.mark_unattended(context.caller, call_id)


def _get_legacy_key(context: RequestContext, request_id: object) -> RequestKey:
    """The key of a request. 7 and "7" are the same id, as for the SDK, which cancels the handlers of both."""
    name = str(request_id)
    if len(name) > CANCEL_KEY_LENGTH_MAX:
        name = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    return RequestKey(context.caller.principal, context.mcp_session_id, name)


def _get_modern_key(context: RequestContext) -> RequestKey | None:
    """The client's key for the request, or None. Clients choose their request ids alike, so those identify no request."""
    request = context.sdk_context.request
    key = "" if request is None else request.headers.get(CANCEL_KEY_HEADER, "")
    return RequestKey(context.caller.principal, "", key) if 0 < len(key) <= CANCEL_KEY_LENGTH_MAX else None
