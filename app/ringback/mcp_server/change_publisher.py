"""Calls followed for clients: each change that a task would show, as long as somebody listens.

Rings are hints and the store is the truth, so changes that come quickly are told as one, and a client that reads slowly is
told the latest state instead of all of them.
"""

import asyncio
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ringback.domain.call import CALL_RESOURCE_URI_PREFIX, Call
from ringback.domain.errors import Forbidden, Gone, NotFound, RingbackError, Unavailable
from ringback.domain.ids import CallId
from ringback.domain.principal import Caller
from ringback.domain.signals import Waiter, call_changed_topic
from ringback.domain.upstreams import Listing, UpstreamErrorResponse
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.pending_results import is_ringback_uri
from ringback.mcp_server.request_context import RequestContext
from ringback.mcp_server.session_notifications import SendNotification
from ringback.mcp_server.task_serializer import get_observable_state
from ringback.mcp_server.upstream_router import UpstreamRouter

CALL_REREAD_SECONDS: Final = 60.0
"""How long a lost ring can delay news. Ten thousand followed calls then cost 170 reads a second."""


class CallChanges:
    def __init__(self, gateway: Gateway, caller: Caller, call_id: CallId, waiter: Waiter) -> None:
        self._gateway = gateway
        self._caller = caller
        self._call_id = call_id
        self._waiter = waiter
        self._last_state: tuple[Any, ...] | None = None
        self._is_ended = False

    async def next_change(self) -> Call | None:
        """The call as soon as a task would show something new, and the first time at once.

        None when there will be no more news: it has ended or is gone.
        """
        while not self._is_ended:
            call = await self._read_call()
            if call is not None and get_observable_state(call) != self._last_state:
                self._last_state, self._is_ended = get_observable_state(call), call.is_final
                return call
            await self._waiter.wait(CALL_REREAD_SECONDS)
        return None

    async def _read_call(self) -> Call | None:
        try:
            return await self._gateway.calls.get_call(self._caller, self._call_id)
        except (NotFound, Gone, Forbidden):
            self._is_ended = True
        except Unavailable:
            pass  # the store is looked at again
        return None


@contextmanager
def subscribe_call_changes(gateway: Gateway, caller: Caller, call_id: CallId) -> Generator[CallChanges]:
    """From entering on nothing is missed. Whether the caller owns the call is checked by who enters."""
    with gateway.signals.listen(call_changed_topic(call_id)) as waiter:
        yield CallChanges(gateway, caller, call_id, waiter)


# Where what is told unasked comes from: resources that change, and lists that do.
#
#     ringback://calls/{id}      the store tells when the call changes
#     any other resource         its upstream does, which is asked to as long as somebody listens
#     lists                      the upstreams do
#
# A change says "look again" and no more, so changes that come while a client reads slowly are told as one.

RESOURCE_UPDATED_METHOD: Final = "notifications/resources/updated"
LIST_CHANGED_METHODS: Final[Mapping[Listing, str]] = {
    Listing.TOOLS: "notifications/tools/list_changed",
    Listing.PROMPTS: "notifications/prompts/list_changed",
    Listing.RESOURCES: "notifications/resources/list_changed",
    Listing.RESOURCE_TEMPLATES: "notifications/resources/list_changed",
}
"""Templates have no notification of their own."""

Acceptance = asyncio.Future[None]
"""Done once it is known whether a resource can be followed; holds the refusal when it cannot."""


class ChangePublisher:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._router = UpstreamRouter(gateway)

    async def publish_resource_changes(
        self, context: RequestContext, uri: str, send: SendNotification, acceptance: Acceptance
    ) -> None:
        """Tell each change of the resource, until cancelled, or until it can change no more."""
        try:
            if is_ringback_uri(uri):
                await self._publish_call_changes(
                    context, CallId(uri.removeprefix(CALL_RESOURCE_URI_PREFIX)), uri, send, acceptance
                )
            else:
                await self._publish_upstream_changes(context, uri, send, acceptance)
        except (RingbackError, UpstreamErrorResponse) as error:
            _reject_subscription(acceptance, error)
        finally:
            _reject_subscription(acceptance, Unavailable("Nobody listens any more."))

    async def publish_list_changes(
        self, context: RequestContext, methods: Collection[str], send: SendNotification
    ) -> None:
        """Tell the `wanted` notifications of LIST_CHANGED when they are due, until cancelled."""
        with self._gateway.proxy.subscribe_changes(context.endpoint.upstream) as changes:
            async for change in changes:
                method = None if change.listing is None else LIST_CHANGED_METHODS[change.listing]
                if method is not None and method in methods and context.caller.may_use_upstream(change.upstream):
                    await send(method, {})

    async def _publish_call_changes(
        self, context: RequestContext, call_id: CallId, uri: str, send: SendNotification, acceptance: Acceptance
    ) -> None:
        with subscribe_call_changes(self._gateway, context.caller, call_id) as call_changes:
            await self._gateway.calls.get_call(context.caller, call_id)
            await call_changes.next_change()  # as it is now, which the client reads by itself once it is accepted
            acceptance.set_result(None)
            while await call_changes.next_change():
                await send(RESOURCE_UPDATED_METHOD, {"uri": uri})

    async def _publish_upstream_changes(
        self, context: RequestContext, uri: str, send: SendNotification, acceptance: Acceptance
    ) -> None:
        upstream, proxy = await self._router.resolve_resource(context, uri), self._gateway.proxy
        with proxy.subscribe_changes(upstream) as changes:
            async with proxy.subscribe_resource(upstream, uri):
                acceptance.set_result(None)
                async for change in changes:
                    if change.uri == uri:
                        await send(RESOURCE_UPDATED_METHOD, {"uri": uri})


def _reject_subscription(acceptance: Acceptance, error: Exception) -> None:
    """Unless it is known already. Who asked may have gone, and then nobody looks at the refusal; that is no error."""
    if not acceptance.done():
        acceptance.set_exception(error)
        acceptance.exception()
