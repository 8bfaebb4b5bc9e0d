"""Tokens for upstreams that the configuration does not have any more.

    a start or a reload without the upstream ──▶ marked ──▶ thirty days later: its tokens are removed
                  with the upstream ──▶ the mark is removed        (those of a login or a refresh since then stay)

Nodes may be reloaded one after the other, and an operator may put an entry back, so nothing is removed at once.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

UNUSED_SECONDS: Final = 30 * 24 * 3600.0
"""How long tokens stay after their upstream was removed from the configuration."""
UPSTREAMS_MAX: Final = 1000
"""Upstreams with tokens that one start or reload looks at: several times those of a configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnusedLogin:
    upstream: str
    unused_since: datetime


class UnusedLoginRows(Protocol):
    async def list_upstreams(self, *, limit: int) -> Sequence[str]:
        """The upstreams that have tokens of any owner."""
        ...

    async def mark(self, upstreams: Collection[str], *, now: datetime) -> int:
        """Mark them as unused since now. An earlier mark stays. Return how many are new."""
        ...

    async def unmark(self, upstreams: Collection[str]) -> None: ...

    async def find_due(self, *, cutoff: datetime) -> UnusedLogin | None:
        """The one that is unused for longest, if that is since before the cutoff. Its row is locked."""
        ...

    async def remove_tokens(self, unused: UnusedLogin, *, limit: int) -> int:
        """Remove tokens of all owners that are older than the mark. Return how many."""
        ...
