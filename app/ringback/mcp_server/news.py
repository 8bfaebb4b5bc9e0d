"""Where what is told unasked comes from: resources that change, and lists that do.

    ringback://calls/{id}      the store tells when the call changes
    any other resource         its upstream does, which is asked to as long as somebody listens
    lists                      the upstreams do

A change says "look again" and no more, so changes that come while a client reads slowly are told as one.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from ringback.domain.call import CALL_RESOURCE_URI_PREFIX
from ringback.domain.errors import RingbackError, Unavailable
from ringback.domain.ids import CallId
from ringback.domain.upstreams import Listing, UpstreamErrorResponse
from ringback.mcp_server.exchange import RequestContext
from ringback.mcp_server.following import subscribe_call_changes
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.pending import is_ringback_uri
from ringback.mcp_server.routes import UpstreamRouter
from ringback.mcp_server.telling import SendNotification

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

    async def publish_resource_changes(self, context: RequestContext, uri: str, send: SendNotification, acceptance: Acceptance) -> None:
        """Tell each change of the resource, until cancelled, or until it can change no more."""
        try:
            if is_ringback_uri(uri):
                await self._publish_call_changes(context, CallId(uri.removeprefix(CALL_RESOURCE_URI_PREFIX)), uri, send, acceptance)
            else:
                await self._publish_upstream_changes(context, uri, send, acceptance)
        except (RingbackError, UpstreamErrorResponse) as error:
            _reject_subscription(acceptance, error)
        finally:
            _reject_subscription(acceptance, Unavailable("Nobody listens any more."))

    async def publish_list_changes(self, context: RequestContext, methods: Collection[str], send: SendNotification) -> None:
        """Tell the `wanted` notifications of LIST_CHANGED when they are due, until cancelled."""
        with self._gateway.proxy.subscribe_changes(context.endpoint.upstream) as changes:
            async for change in changes:
                method = None if change.listing is None else LIST_CHANGED_METHODS[change.listing]
                if method is not None and method in methods and context.caller.may_use_upstream(change.upstream):
                    await send(method, {})

    async def _publish_call_changes(self, context: RequestContext, call_id: CallId, uri: str, send: SendNotification, acceptance: Acceptance) -> None:
        with subscribe_call_changes(self._gateway, context.caller, call_id) as call_changes:
            await self._gateway.calls.get_call(context.caller, call_id)
            await call_changes.next_change()  # as it is now, which the client reads by itself once it is accepted
            acceptance.set_result(None)
            while await call_changes.next_change():
                await send(RESOURCE_UPDATED_METHOD, {"uri": uri})

    async def _publish_upstream_changes(self, context: RequestContext, uri: str, send: SendNotification, acceptance: Acceptance) -> None:
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
