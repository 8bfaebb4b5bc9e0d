"""The event types of upstreams, as they listed them last."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from ringback.domain.event_types import EventType, is_listable_name, qualified_name, split_name
from ringback.domain.upstreams import Listing
from ringback.protocol.mcp_events.names import DeliveryMode, offers_events
from ringback.upstreams.catalog.catalog_cache import CatalogCache
from ringback.upstreams.catalog.tool_catalog import LIST_AGE_SECONDS_MAX
from ringback.upstreams.catalog.upstream_lists import UpstreamLists
from ringback.upstreams.config import UpstreamConfig
from ringback.upstreams.config.models import Isolation

_ANY_OBJECT: Mapping[str, Any] = {"type": "object"}


class ListedConnection(Protocol):
    """What the catalog needs of a connection."""

    @property
    def catalog_cache(self) -> CatalogCache: ...
    @property
    def config(self) -> UpstreamConfig: ...
    @property
    def lists(self) -> UpstreamLists: ...


class UpstreamEventCatalog:
    """Implements `services.events.event_types.UpstreamEventTypes` over the caches of the connections."""

    def __init__(self, connections: Mapping[str, ListedConnection]) -> None:
        self._connections = connections
        self._read_lists: dict[str, tuple[Sequence[Mapping[str, Any]], Mapping[str, EventType]]] = {}
        """By upstream, the list that was read last, and its types by name. A newer list is another object."""

    async def refresh_event_types(self, upstream: str | None) -> None:
        names = [*self._connections] if upstream is None else [upstream]
        async with asyncio.TaskGroup() as group:
            for connection in (self._connections.get(name) for name in names):
                if connection is not None and _offers_events(connection):
                    lists = connection.lists
                    group.create_task(
                        lists.get_entries(Listing.EVENTS, age_seconds_max=LIST_AGE_SECONDS_MAX, can_elicit=False)
                    )

    def list_event_types(self, upstream: str | None) -> Sequence[EventType]:
        names = sorted(self._connections) if upstream is None else [upstream]
        return [each for name in names for each in self._get_types(name).values()]

    def find_event_type(self, name: str) -> EventType | None:
        upstream, _ = split_name(name)
        return None if upstream is None else self._get_types(upstream).get(name)

    def _get_types(self, upstream: str) -> Mapping[str, EventType]:
        """A webhook names up to 256 types, and an upstream may list thousands: so a list is read once."""
        connection = self._connections.get(upstream)
        entries = None
        if connection is not None and _offers_events(connection):
            entries = connection.catalog_cache.get_entries(Listing.EVENTS)
        if entries is None:
            self._read_lists.pop(upstream, None)
            return {}
        known = self._read_lists.get(upstream)
        if known is None or known[0] is not entries:
            types = (_parse_type(upstream, entry) for entry in entries)
            known = self._read_lists[upstream] = (entries, {each.name: each for each in types if each is not None})
        return known[1]


def _offers_events(connection: ListedConnection) -> bool:
    """An upstream that isolates principals may have events that are private to a session, so its events are left out."""
    profile = connection.catalog_cache.profile
    is_shared = connection.config.isolation is Isolation.SHARED
    return is_shared and profile is not None and offers_events(profile.capabilities)


def _parse_type(upstream: str, entry: Mapping[str, Any]) -> EventType | None:
    """The type of a listed entry. What the upstream left out is filled in.

    None if its name cannot be passed on, or if the upstream offers it by webhook only: its callbacks would need a URL of ours
    that the upstream can reach, which a service behind a firewall does not have.
    """
    own_name, description = entry.get("name"), entry.get("description")
    listed: Any = entry.get("delivery")
    modes = cast("list[Any]", listed) if isinstance(listed, list) else [DeliveryMode.POLL]
    if not isinstance(own_name, str) or not is_listable_name(own_name):
        return None
    if DeliveryMode.POLL not in modes and DeliveryMode.PUSH not in modes:
        return None
    return EventType(
        name=qualified_name(upstream, own_name),
        own_name=own_name,
        upstream=upstream,
        description=description
        if isinstance(description, str) and description
        else f"An event of upstream '{upstream}'.",
        input_schema=_schema(entry.get("inputSchema")),
        payload_schema=_schema(entry.get("payloadSchema")),
        streams=DeliveryMode.PUSH in modes,
    )


def _schema(value: Any) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else _ANY_OBJECT
