"""Resolves the upstreams of an endpoint, their lists, and the upstream of a name or URI.

    /mcp/{upstream}    one upstream, its names unchanged
    /mcp               all upstreams that the caller may use: tools and prompts as `upstream__name`, resources by their own URIs

At `/mcp` an upstream whose list is unavailable is left out, and of two resources with one URI the first upstream's counts. A
resource that no list has is found by the scheme of its URI.
"""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from ringback.domain.errors import NotFound, RingbackError, UnknownTool
from ringback.domain.upstream_logins import SHARED_OWNER
from ringback.domain.upstreams import Listing
from ringback.mcp_server.call_options import accepts_input
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.request_context import RequestContext
from ringback.services.upstreams.tool_aliases import ALIAS_SEPARATOR, SHORTENED_ALIAS_PATTERN, make_alias, split_alias

log = logging.getLogger(__name__)

_LISTING_KEYS: Final = {
    Listing.TOOLS: "name",
    Listing.RESOURCES: "uri",
    Listing.RESOURCE_TEMPLATES: "uriTemplate",
    Listing.PROMPTS: "name",
}
_ALIASED_LISTINGS: Final = frozenset({Listing.TOOLS, Listing.PROMPTS})
"""Lists whose entries are named; at `/mcp` the name contains the upstream."""
_COMMON_SCHEMES: Final = frozenset({"http", "https", "file", "git", "ui"})
"""Schemes that all servers may use (MCP, Resources, Common URI Schemes; MCP Apps)."""
_TEMPLATE_EXPRESSION: Final = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedEntry:
    upstream: str
    upstream_key: str
    """The name or URI at the upstream."""
    definition: dict[str, Any] = field(repr=False)
    """A copy, with the name at this endpoint."""


@dataclass(frozen=True, slots=True)
class UpstreamRouter:
    gateway: Gateway
    logged_conflicts: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]], repr=False)
    """Pairs of upstreams with the same URI; each is logged once."""

    def list_upstreams(self, context: RequestContext) -> Sequence[str]:
        if context.endpoint.upstream is not None:
            return [context.endpoint.upstream]
        infos = self.gateway.catalog.list_upstreams(context.caller.principal)
        return [info.name for info in infos if context.caller.may_use_upstream(info.name)]

    async def list_entries(self, context: RequestContext, listing: Listing) -> Sequence[ListedEntry]:
        """All entries at this endpoint, in the order of the configured upstreams and of each upstream's list."""
        upstreams = self.list_upstreams(context)
        can_elicit = accepts_input(context)
        if context.endpoint.upstream is not None:
            listed = await self.gateway.proxy.list_entries(
                upstreams[0], listing, principal=context.caller.principal, can_elicit=can_elicit
            )
            return _build_entries(upstreams[0], listing, listed)
        lists = await asyncio.gather(
            *(self._list_reachable(context, upstream, listing, can_elicit=can_elicit) for upstream in upstreams)
        )
        entries = [
            entry for each in zip(upstreams, lists, strict=True) for entry in _build_entries(each[0], listing, each[1])
        ]
        return (
            await self._apply_aliases(context, entries, listing)
            if listing in _ALIASED_LISTINGS
            else self._drop_duplicate_uris(entries)
        )

    async def resolve_name(self, context: RequestContext, listing: Listing, name: str) -> tuple[str, str]:
        """The upstream of a tool or prompt and its name there; raises `UnknownTool`."""
        if context.endpoint.upstream is not None:
            return context.endpoint.upstream, name
        target = await self._resolve_alias(context, listing, name)
        if target is None or target[0] not in self.list_upstreams(context):
            hint = "" if ALIAS_SEPARATOR in name else f"Here its upstream comes first: upstream{ALIAS_SEPARATOR}name. "
            raise UnknownTool(f"No upstream has an entry of this name. {hint}List the entries: {listing}/list")
        return target

    async def resolve_resource(self, context: RequestContext, uri: str) -> str:
        """The upstream that first lists the resource, or whose template first matches; raises `NotFound`.

        The result of a tool may link to a resource that no list has (MCP, Tools, Resource Links). It belongs to the only
        upstream that lists resources of its scheme. One of several upstreams must not see the URIs of another one.
        """
        if context.endpoint.upstream is not None:
            return context.endpoint.upstream
        resources = await self.list_entries(context, Listing.RESOURCES)
        for entry in resources:
            if entry.upstream_key == uri:
                return entry.upstream
        templates = await self.list_entries(context, Listing.RESOURCE_TEMPLATES)
        for entry in templates:
            if matches_template(entry.upstream_key, uri):
                return entry.upstream
        owners = {entry.upstream for entry in (*resources, *templates) if has_same_own_scheme(entry.upstream_key, uri)}
        if len(owners) == 1:
            return owners.pop()
        raise NotFound("No upstream lists this resource. List them: resources/list", uri=uri)

    async def _list_reachable(
        self, context: RequestContext, upstream: str, listing: Listing, *, can_elicit: bool
    ) -> Sequence[Mapping[str, Any]]:
        try:
            return await self.gateway.proxy.list_entries(
                upstream, listing, principal=context.caller.principal, can_elicit=can_elicit
            )
        except RingbackError as problem:
            log.info("joined.left_out", extra={"upstream": upstream, "listing": str(listing), "problem": problem.slug})
            return ()

    async def _apply_aliases(
        self, context: RequestContext, entries: Sequence[ListedEntry], listing: Listing
    ) -> Sequence[ListedEntry]:
        """Entries of the principal's own connections get their aliases here: `tool_aliases` stores those of all principals."""
        shared = [entry for entry in entries if not self._is_owned(context, entry.upstream)]
        names = await self.gateway.tool_aliases.assign_aliases(
            listing, [(entry.upstream, entry.upstream_key) for entry in shared]
        )
        aliases = {id(entry): name for entry, name in zip(shared, names, strict=True)}
        own = [(make_alias(entry.upstream, entry.upstream_key), entry) for entry in entries if id(entry) not in aliases]
        aliases |= {id(entry): name for name, entry in dict(reversed(own)).items()}  # the first entry of a name counts
        return [
            replace(entry, definition={**entry.definition, "name": name})
            for entry in entries
            if (name := aliases.get(id(entry))) is not None
        ]

    async def _resolve_alias(self, context: RequestContext, listing: Listing, name: str) -> tuple[str, str] | None:
        parts = split_alias(name)
        if parts is None or not self._is_owned(context, parts[0]):
            return await self.gateway.tool_aliases.resolve_alias(listing, name)
        upstream, original = parts
        if SHORTENED_ALIAS_PATTERN.search(name) is None or upstream not in self.list_upstreams(context):
            return parts
        listed = await self._list_reachable(context, upstream, listing, can_elicit=accepts_input(context))
        names = [entry[_LISTING_KEYS[listing]] for entry in listed]
        return upstream, next((each for each in names if make_alias(upstream, each) == name), original)

    def _is_owned(self, context: RequestContext, upstream: str) -> bool:
        """Whether the principal has a connection of its own, which may list what no other principal sees."""
        return self.gateway.proxy.get_owner(upstream, context.caller.principal) != SHARED_OWNER

    def _drop_duplicate_uris(self, entries: Sequence[ListedEntry]) -> Sequence[ListedEntry]:
        entries_by_uri: dict[str, ListedEntry] = {}
        for entry in entries:
            listed_first = entries_by_uri.setdefault(entry.upstream_key, entry)
            pair = (listed_first.upstream, entry.upstream)
            if listed_first is not entry and pair not in self.logged_conflicts:
                self.logged_conflicts.add(pair)
                log.warning("joined.same_uri", extra={"kept": pair[0], "left_out": pair[1]})
        return list(entries_by_uri.values())


def has_same_own_scheme(listed: str, uri: str) -> bool:
    """Whether both URIs have the same scheme, and one that a server has chosen for its own resources."""
    scheme, separator, _ = uri.partition(":")
    return bool(separator) and scheme not in _COMMON_SCHEMES and listed.partition(":")[0] == scheme


def matches_template(template: str, uri: str) -> bool:
    """Whether a URI matches a template (RFC 6570): it contains the fixed parts in their order.

    The parts are searched one after the other: one regular expression with three variables and a long URI would block the
    service.
    """
    prefix, *rest = _TEMPLATE_EXPRESSION.split(template)
    if not rest:
        return uri == prefix
    *middle, suffix = rest
    if not uri.startswith(prefix):
        return False
    position = len(prefix)
    for part in middle:
        index = uri.find(part, position)
        if index < 0:
            return False
        position = index + len(part)
    return position <= len(uri) - len(suffix) and uri.endswith(suffix)


def _build_entries(upstream: str, listing: Listing, listed: Sequence[Mapping[str, Any]]) -> Sequence[ListedEntry]:
    key = _LISTING_KEYS[listing]
    return [ListedEntry(upstream=upstream, upstream_key=entry[key], definition=dict(entry)) for entry in listed]
