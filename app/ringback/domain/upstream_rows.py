"""Ports of the store for upstreams: the cached catalog (profile and last lists), tool aliases, and what operators decided."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol

PROFILE_PART: Final = "profile"
"""The name of the profile. Lists are named by their `domain.upstreams.Listing`."""
ELICITING_PREFIX: Final = "eliciting/"
"""Begins the name of a list that the upstream sends to clients that can elicit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPart:
    upstream: str
    part: str
    body: Any = field(repr=False)
    """JSON: the profile's members, or the unchanged entries of the list."""
    fetched_at: datetime
    """When the upstream first sent this body. The same body sent again changes nothing."""


class CatalogRows(Protocol):
    """Implemented by the stores (`domain.ports`)."""

    async def list_all(self) -> Sequence[CatalogPart]: ...

    async def save_part(self, part: CatalogPart) -> None:
        """Insert or replace the part."""
        ...

    async def remove_other_upstreams(self, upstreams: Collection[str]) -> int:
        """Remove the parts of all other upstreams. Return their number."""
        ...


# Aliases under which tools and prompts of several upstreams share one endpoint, stored if the name alone does not identify the
# original.


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAlias:
    """At `/mcp`, `name` means this upstream's `original`."""

    kind: str
    """tools | prompts"""
    name: str
    upstream: str
    original: str


class ToolAliasRows(Protocol):
    """Implemented by the stores (`domain.ports`)."""

    async def list_all(self) -> Sequence[ToolAlias]: ...

    async def insert(self, alias: ToolAlias) -> bool:
        """False if the name is taken; nothing is written then."""
        ...


# What an operator decided about an upstream. It holds for all nodes, and after a restart.


class UpstreamIntake(StrEnum):
    """Which calls an upstream takes."""

    OPEN = "open"
    PAUSED = "paused"
    """New calls are accepted and queued, and queued calls stay queued. Running calls continue."""
    DRAINING = "draining"
    """New calls are refused. Queued and running calls continue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamControl:
    """Stored unless the upstream is open."""

    upstream: str
    intake: UpstreamIntake
    changed_at: datetime


class UpstreamControlRows(Protocol):
    """Implemented by the stores (`domain.ports`). `CallQueue` leases no call of a paused upstream."""

    async def list_all(self) -> Sequence[UpstreamControl]: ...

    async def save(self, control: UpstreamControl) -> None:
        """Insert or replace what was decided about the upstream."""
        ...

    async def remove(self, upstream: str) -> None:
        """The upstream is open again."""
        ...
