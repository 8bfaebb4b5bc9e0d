"""Publishes changes of calls, resources and lists to clients.

    ringback://calls/{id}      changes of the call, read from the store
    other resources            changes that the upstream reports, subscribed to while a client is subscribed
    lists                      changes that the upstreams report

A notification only says that something changed. Signals are hints and the store is the truth, so changes in quick succession
become one notification, and a slow reader gets the latest state instead of every state.
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
from ringback.protocol.mcp_events.names import LIST_CHANGED_FLAG, EventNotification

CALL_REREAD_SECONDS: Final = 60.0
"""How long a lost signal can delay a notification. Ten thousand subscribed calls then cost 170 reads a second."""
RESOURCE_UPDATED_METHOD: Final = "notifications/resources/updated"
LIST_CHANGED_METHODS: Final[Mapping[str, str]] = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
    LIST_CHANGED_FLAG: EventNotification.LIST_CHANGED,
}
"""The notifications of changed lists, by their flags in subscriptions/listen."""
_LIST_CHANGED_FLAGS: Final[Mapping[Listing, str]] = {
    Listing.TOOLS: "toolsListChanged",
    Listing.PROMPTS: "promptsListChanged",
    Listing.RESOURCES: "resourcesListChanged",
    Listing.RESOURCE_TEMPLATES: "resourcesListChanged",
    Listing.EVENTS: LIST_CHANGED_FLAG,
}
"""Resource templates have no notification of their own."""

Acceptance = asyncio.Future[None]
"""Done when the subscription is accepted; contains the error when it is refused."""


class CallChanges:
    def __init__(self, gateway: Gateway, caller: Caller, call_id: CallId, waiter: Waiter) -> None:
        self._gateway = gateway
        self._caller = caller
        self._call_id = call_id
        self._waiter = waiter
        self._last_state: tuple[Any, ...] | None = None
        self._is_ended = False

    async def next_change(self) -> Call | None:
        """The call when a task would show a change; the first time at once.

        None when no more changes can follow, because the call has ended or is gone.
        """
        while not self._is_ended:
            call = await self._read_call()
            if call is not None and get_observable_state(call) != self._last_state:
                self._last_state, self._is_ended = get_observable_state(call), call.is_final
                return call
            if not self._is_ended:
                await self._waiter.wait(CALL_REREAD_SECONDS)
        return None

    async def retry_change(self) -> None:
        """Wait for a signal or for the next read; `next_change` then returns the call again, changed or not."""
        self._last_state, self._is_ended = None, False
        await self._waiter.wait(CALL_REREAD_SECONDS)

    async def _read_call(self) -> Call | None:
        try:
            return await self._gateway.calls.get_call(self._caller, self._call_id)
        except (NotFound, Gone, Forbidden):
            self._is_ended = True
        except Unavailable:
            pass  # the next round reads the store again
        return None


@contextmanager
def subscribe_call_changes(gateway: Gateway, caller: Caller, call_id: CallId) -> Generator[CallChanges]:
    """No change after entering is missed. The caller of this function checks who owns the call."""
    with gateway.signals.listen(call_changed_topic(call_id)) as waiter:
        yield CallChanges(gateway, caller, call_id, waiter)


class ChangePublisher:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._router = UpstreamRouter(gateway)

    async def publish_resource_changes(
        self, context: RequestContext, uri: str, send: SendNotification, acceptance: Acceptance
    ) -> None:
        """Send a notification for each change of the resource, until cancelled or until it cannot change any more."""
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
            _reject_subscription(acceptance, Unavailable("The subscription has ended."))

    async def publish_list_changes(
        self, context: RequestContext, flags: Collection[str], send: SendNotification
    ) -> None:
        """Send the notifications of these flags when their lists change, until cancelled.

        A client whose session continues in this process gets them once at the start: the lists may have changed meanwhile.
        """
        with self._gateway.proxy.subscribe_changes(
            context.endpoint.upstream, principal=context.caller.principal, uris=()
        ) as changes:
            for flag in flags if context.is_replayed else ():
                await send(LIST_CHANGED_METHODS[flag], {})
            async for change in changes:
                flag = None if change.listing is None else _LIST_CHANGED_FLAGS.get(change.listing)
                if flag is not None and flag in flags and context.caller.may_use_upstream(change.upstream):
                    await send(LIST_CHANGED_METHODS[flag], {})

    async def _publish_call_changes(
        self, context: RequestContext, call_id: CallId, uri: str, send: SendNotification, acceptance: Acceptance
    ) -> None:
        with subscribe_call_changes(self._gateway, context.caller, call_id) as call_changes:
            await self._gateway.calls.get_call(context.caller, call_id)
            await call_changes.next_change()  # the first change is the current state, which the client reads itself
            acceptance.set_result(None)
            await _announce_replayed(context, uri, send)
            while await call_changes.next_change():
                await send(RESOURCE_UPDATED_METHOD, {"uri": uri})

    async def _publish_upstream_changes(
        self, context: RequestContext, uri: str, send: SendNotification, acceptance: Acceptance
    ) -> None:
        upstream, proxy = await self._router.resolve_resource(context, uri), self._gateway.proxy
        principal = context.caller.principal
        with proxy.subscribe_changes(upstream, principal=principal, uris=(uri,)) as changes:
            async with proxy.subscribe_resource(upstream, uri, principal=principal):
                acceptance.set_result(None)
                await _announce_replayed(context, uri, send)
                async for change in changes:
                    if change.uri == uri:
                        await send(RESOURCE_UPDATED_METHOD, {"uri": uri})


async def _announce_replayed(context: RequestContext, uri: str, send: SendNotification) -> None:
    """Report a change to a client whose session continues in this process: the resource may have changed meanwhile."""
    if context.is_replayed:
        await send(RESOURCE_UPDATED_METHOD, {"uri": uri})


def _reject_subscription(acceptance: Acceptance, error: Exception) -> None:
    """Refuse the subscription, unless it is already accepted or refused.

    The client may have disconnected, so that the error is never retrieved; reading it here avoids asyncio's warning.
    """
    if not acceptance.done():
        acceptance.set_exception(error)
        acceptance.exception()
