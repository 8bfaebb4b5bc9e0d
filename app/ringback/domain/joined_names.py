"""Names under which things of several upstreams stand side by side: stored where they cannot be read back from themselves."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedName:
    """What stands at `/mcp` under `name` is this upstream's `original`."""

    kind: str
    """tools | prompts"""
    name: str
    upstream: str
    original: str


class JoinedNameRows(Protocol):
    """Implemented by the stores (`domain.ports`)."""

    async def all(self) -> Sequence[JoinedName]: ...

    async def insert(self, name: JoinedName) -> bool:
        """False when the name is taken; then nothing was written."""
        ...
