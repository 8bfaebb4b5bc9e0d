"""Where what is told unasked comes from: resources that change, and lists that do.

    ringback://calls/{id}      the store tells when the call changes
    any other resource         its upstream does, which is asked to as long as somebody listens
    lists                      the upstreams do

A change says "look again" and no more, so changes that come while a client reads slowly are told as one.
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import Final

from ringback.domain.call import RESOURCE_PREFIX
from ringback.domain.errors import RingbackError, Unavailable
from ringback.domain.ids import CallId
from ringback.domain.upstreams import Listing, UpstreamRefused
from ringback.mcp_server.exchange import Exchange
from ringback.mcp_server.following import following
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.pending import is_pending_uri
from ringback.mcp_server.routes import Routes
from ringback.mcp_server.telling import Tell

UPDATED: Final = "notifications/resources/updated"
LIST_CHANGED: Final[Mapping[Listing, str]] = {
    Listing.TOOLS: "notifications/tools/list_changed",
    Listing.PROMPTS: "notifications/prompts/list_changed",
    Listing.RESOURCES: "notifications/resources/list_changed",
    Listing.RESOURCE_TEMPLATES: "notifications/resources/list_changed",
}
"""Templates have no notification of their own."""

Accepted = asyncio.Future[None]
"""Done once it is known whether a resource can be followed; holds the refusal when it cannot."""


class News:
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._routes = Routes(gateway)

    async def resource(self, exchange: Exchange, uri: str, tell: Tell, accepted: Accepted) -> None:
        """Tell each change of the resource, until cancelled, or until it can change no more."""
        try:
            if is_pending_uri(uri):
                await self._call(exchange, CallId(uri.removeprefix(RESOURCE_PREFIX)), uri, tell, accepted)
            else:
                await self._upstream_resource(exchange, uri, tell, accepted)
        except (RingbackError, UpstreamRefused) as refusal:
            _refuse(accepted, refusal)
        finally:
            _refuse(accepted, Unavailable("Nobody listens any more."))

    async def lists(self, exchange: Exchange, wanted: Collection[str], tell: Tell) -> None:
        """Tell the `wanted` notifications of LIST_CHANGED when they are due, until cancelled."""
        with self._gateway.passage.changes(exchange.endpoint.upstream) as changes:
            async for change in changes:
                method = None if change.listing is None else LIST_CHANGED[change.listing]
                if method is not None and method in wanted and exchange.caller.may_use(change.upstream):
                    await tell(method, {})

    async def _call(self, exchange: Exchange, call_id: CallId, uri: str, tell: Tell, accepted: Accepted) -> None:
        with following(self._gateway, exchange.caller, call_id) as calls:
            await self._gateway.calls.get(exchange.caller, call_id)
            await calls.next()  # as it is now, which the client reads by itself once it is accepted
            accepted.set_result(None)
            while await calls.next():
                await tell(UPDATED, {"uri": uri})

    async def _upstream_resource(self, exchange: Exchange, uri: str, tell: Tell, accepted: Accepted) -> None:
        upstream, passage = await self._routes.owner(exchange, uri), self._gateway.passage
        with passage.changes(upstream) as changes:
            async with passage.watching(upstream, uri):
                accepted.set_result(None)
                async for change in changes:
                    if change.uri == uri:
                        await tell(UPDATED, {"uri": uri})


def _refuse(accepted: Accepted, refusal: Exception) -> None:
    """Unless it is known already. Who asked may have gone, and then nobody looks at the refusal; that is no error."""
    if not accepted.done():
        accepted.set_exception(refusal)
        accepted.exception()
