"""Ports of the store for upstreams: the cached catalog (profile and last lists), tool aliases, and what operators decided."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol

from ringback.domain.principal import Principal

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
    """What shared connections got. Implemented by the stores (`domain.ports`)."""

    async def list_all(self) -> Sequence[CatalogPart]: ...

    async def save_part(self, part: CatalogPart) -> None:
        """Insert or replace the part."""
        ...

    async def remove_other_upstreams(self, upstreams: Collection[str]) -> int:
        """Remove the parts of all other upstreams. Return their number."""
        ...

    async def remove_upstream(self, upstream: str) -> int:
        """Remove the parts of an upstream, whose login has changed. Return their number."""
        ...


class OwnedCatalogRows(Protocol):
    """What connections of single principals got. Implemented by the stores. Erasures remove the parts of their principal."""

    async def list_parts(self, upstream: str, owner: Principal) -> Sequence[CatalogPart]: ...

    async def save_part(self, owner: Principal, part: CatalogPart) -> None:
        """Insert or replace the part."""
        ...

    async def remove_upstream(self, upstream: str, *, limit: int) -> int:
        """Remove parts of all owners. Return their number, at most `limit`."""
        ...

    async def remove_owned(self, upstream: str, owner: Principal) -> int:
        """Remove the parts of one owner, whose login has changed. Return their number."""
        ...

    async def list_upstreams(self) -> Sequence[str]:
        """The upstreams that have parts."""
        ...

    async def remove_old(self, *, cutoff: datetime, limit: int) -> int:
        """Remove parts that were fetched before the cutoff. Return their number, at most `limit`."""
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
