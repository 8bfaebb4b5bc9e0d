"""Which upstreams stand behind an endpoint, what they list, and where a name or a URI leads.

    /mcp/{upstream}    one upstream, its names unchanged
    /mcp               all that the caller may see: tools and prompts as `upstream__name`, resources by their own URIs

At `/mcp` an upstream that cannot be asked is left out of a list, and of two resources with one URI the first upstream's counts.
"""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ringback.domain.errors import NotFound, RingbackError, UnknownTool
from ringback.domain.upstreams import Listing
from ringback.mcp_server.exchange import Exchange
from ringback.mcp_server.gateway import Gateway

log = logging.getLogger(__name__)

_NAMES: Final = {
    Listing.TOOLS: "name",
    Listing.RESOURCES: "uri",
    Listing.RESOURCE_TEMPLATES: "uriTemplate",
    Listing.PROMPTS: "name",
}
_NAMED: Final = frozenset({Listing.TOOLS, Listing.PROMPTS})
"""What clients call by a name, which at `/mcp` says whose it is."""
_EXPRESSION: Final = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    upstream: str
    original: str
    """Its name or URI there."""
    shown: dict[str, Any] = field(repr=False)
    """A copy, under the name that it has at this endpoint."""


@dataclass(frozen=True, slots=True)
class Routes:
    gateway: Gateway
    told: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]], repr=False)
    """Pairs of upstreams of which the first hides something of the second: each is logged once, however often it is listed."""

    def upstreams(self, exchange: Exchange) -> Sequence[str]:
        if exchange.endpoint.upstream is not None:
            return [exchange.endpoint.upstream]
        return [info.name for info in self.gateway.catalog.upstreams() if exchange.caller.may_use(info.name)]

    async def entries(self, exchange: Exchange, listing: Listing) -> Sequence[Entry]:
        """Everything that is listed at this endpoint: by upstreams in the order of the configuration, then in their own."""
        upstreams = self.upstreams(exchange)
        if exchange.endpoint.upstream is not None:
            return _entries(upstreams[0], listing, await self.gateway.passage.listed(upstreams[0], listing))
        lists = await asyncio.gather(*(self._listed(upstream, listing) for upstream in upstreams))
        found = [entry for each in zip(upstreams, lists, strict=True) for entry in _entries(each[0], listing, each[1])]
        return await self._renamed(found, listing) if listing in _NAMED else self._first_of_each(found)

    async def find(self, exchange: Exchange, listing: Listing, name: str) -> tuple[str, str]:
        """The upstream and the name there of a tool or prompt; raises `UnknownTool` for a name that leads nowhere."""
        if exchange.endpoint.upstream is not None:
            return exchange.endpoint.upstream, name
        found = await self.gateway.names.find(listing, name)
        if found is None or found[0] not in self.upstreams(exchange):
            raise UnknownTool(f"There is nothing of this name. List what there is: {listing}/list")
        return found

    async def owner(self, exchange: Exchange, uri: str) -> str:
        """The upstream whose resource it is: the first that lists it, or whose template it fits; raises `NotFound`."""
        if exchange.endpoint.upstream is not None:
            return exchange.endpoint.upstream
        for entry in await self.entries(exchange, Listing.RESOURCES):
            if entry.original == uri:
                return entry.upstream
        for entry in await self.entries(exchange, Listing.RESOURCE_TEMPLATES):
            if fits(entry.original, uri):
                return entry.upstream
        raise NotFound("No upstream lists this resource. List them: resources/list", uri=uri)

    async def _listed(self, upstream: str, listing: Listing) -> Sequence[Mapping[str, Any]]:
        try:
            return await self.gateway.passage.listed(upstream, listing)
        except RingbackError as problem:
            log.info("joined.left_out", extra={"upstream": upstream, "listing": str(listing), "problem": problem.slug})
            return ()

    async def _renamed(self, entries: Sequence[Entry], listing: Listing) -> Sequence[Entry]:
        names = await self.gateway.names.of(listing, [(entry.upstream, entry.original) for entry in entries])
        return [
            replace(entry, shown={**entry.shown, "name": name})
            for entry, name in zip(entries, names, strict=True)
            if name is not None
        ]

    def _first_of_each(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        kept: dict[str, Entry] = {}
        for entry in entries:
            first = kept.setdefault(entry.original, entry)
            pair = (first.upstream, entry.upstream)
            if first is not entry and pair not in self.told:
                self.told.add(pair)
                log.warning("joined.same_uri", extra={"kept": pair[0], "left_out": pair[1]})
        return list(kept.values())


def fits(template: str, uri: str) -> bool:
    """Whether a URI could come from a template (RFC 6570): its fixed parts are there, in their order.

    Looked for one after the other: as one regular expression, three variables and a long URI would stop the service.
    """
    begin, *rest = _EXPRESSION.split(template)
    if not rest:
        return uri == begin
    *inner, end = rest
    if not uri.startswith(begin):
        return False
    place = len(begin)
    for part in inner:
        found = uri.find(part, place)
        if found < 0:
            return False
        place = found + len(part)
    return place <= len(uri) - len(end) and uri.endswith(end)


def _entries(upstream: str, listing: Listing, listed: Sequence[Mapping[str, Any]]) -> Sequence[Entry]:
    key = _NAMES[listing]
    return [Entry(upstream=upstream, original=entry[key], shown=dict(entry)) for entry in listed]
