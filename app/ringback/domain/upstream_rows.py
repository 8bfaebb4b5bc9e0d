"""What is kept of upstreams for the time while they are away: how each presented itself, and what it listed last."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

PROFILE_PART: Final = "profile"
"""The part that is no list; the lists go by their `domain.upstreams.Listing`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogPart:
    upstream: str
    part: str
    body: Any = field(repr=False)
    """JSON: the profile's members, or the entries of the list as they came."""
    fetched_at: datetime
    """When the upstream told it so for the first time; the same told again changes nothing."""


class CatalogRows(Protocol):
    """Implemented by the stores (`domain.ports`)."""

    async def list_all(self) -> Sequence[CatalogPart]: ...

    async def save_part(self, part: CatalogPart) -> None:
        """Keep it in the place of what was kept of the same part."""
        ...

    async def remove_other_upstreams(self, upstreams: Collection[str]) -> int:
        """Remove what is kept of any other upstream; how many parts."""
        ...


# Names under which things of several upstreams stand side by side: stored where they cannot be read back from themselves.


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAlias:
    """What stands at `/mcp` under `name` is this upstream's `original`."""

    kind: str
    """tools | prompts"""
    name: str
    upstream: str
    original: str


class ToolAliasRows(Protocol):
    """Implemented by the stores (`domain.ports`)."""

    async def list_all(self) -> Sequence[ToolAlias]: ...

    async def insert(self, alias: ToolAlias) -> bool:
        """False when the name is taken; then nothing was written."""
        ...
