"""Names under which things of several upstreams stand side by side: stored where they cannot be read back from themselves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


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
