"""Which upstreams are asked for their event types, and how often what they listed is read."""

from types import SimpleNamespace
from typing import Any

import pytest

from ringback.upstreams.config.models import Isolation
from ringback.upstreams.events.event_catalog import UpstreamEventCatalog


def list_one_type(_listing: Any) -> list[dict[str, Any]]:
    return [{"name": "pr.opened"}]


class ListedUpstream:
    """A connection whose upstream has these capabilities, and would list an event type to any client."""

    def __init__(self, capabilities: dict[str, Any] | None, isolation: Isolation) -> None:
        profile = None if capabilities is None else SimpleNamespace(capabilities=capabilities)
        self.catalog_cache: Any = SimpleNamespace(profile=profile, get_entries=list_one_type)
        self.config: Any = SimpleNamespace(isolation=isolation)
        self.lists: Any = self
        self.requests = 0

    async def get_entries(self, *_args: Any, **_options: Any) -> None:
        self.requests += 1


@pytest.mark.parametrize(
    ("capabilities", "isolation", "is_asked"),
    [
        ({"extensions": {"io.modelcontextprotocol/events": {}}}, Isolation.SHARED, True),
        ({"events": {"listChanged": True}}, Isolation.SHARED, True),
        ({"extensions": {"io.modelcontextprotocol/tasks": {}}, "tools": {}}, Isolation.SHARED, False),
        ({}, Isolation.SHARED, False),
        (None, Isolation.SHARED, False),
        ({"events": {}}, Isolation.PRINCIPAL, False),
    ],
)
async def test_an_upstream_that_does_not_declare_events_is_not_asked_for_them(
    capabilities: dict[str, Any] | None,
    isolation: Isolation,
    is_asked: bool,  # noqa: FBT001
) -> None:
    upstream = ListedUpstream(capabilities, isolation)
    catalog = UpstreamEventCatalog({"github": upstream})
    await catalog.refresh_event_types(None)

    assert upstream.requests == is_asked
    assert len(catalog.list_event_types("github")) == is_asked


class CountedEntry(dict[str, Any]):
    """A listed type that counts how often its name is read."""

    names_read = 0

    def get(self, key: str, default: Any = None, /) -> Any:
        self.names_read += key == "name"
        return super().get(key, default)


def test_a_list_of_types_is_read_once_however_many_names_are_sought_in_it_and_again_when_it_is_replaced() -> None:
    """A webhook may name 256 types, and each poll names one: an upstream that lists thousands would block the service."""
    listed = [CountedEntry(name=f"order.{number}") for number in range(3)]

    def list_entries(_listing: object) -> list[CountedEntry]:
        return listed

    upstream = ListedUpstream({"events": {}}, Isolation.SHARED)
    upstream.catalog_cache.get_entries = list_entries
    catalog = UpstreamEventCatalog({"shop": upstream})

    found = [catalog.find_event_type(f"shop/order.{number}") for number in (0, 1, 2, 3)]
    all_types = catalog.list_event_types(None)

    assert [None if each is None else each.own_name for each in found] == ["order.0", "order.1", "order.2", None]
    assert len(all_types) == 3
    assert [entry.names_read for entry in listed] == [1, 1, 1]
    listed = [CountedEntry(name="order.9")]
    assert [each.own_name for each in catalog.list_event_types("shop")] == ["order.9"]
