"""Which upstreams are asked for their event types."""

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
