"""The audit log: who changed what, and when.

An entry is committed with its change. It has ids and the service's own words: no secret, no argument, no result. It is kept for
a bounded time, also after its principal was erased: it is the record of that, too. An owner with very many changes has the
newest entries only.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from ringback.domain.cursor import Page
from ringback.domain.ids import KeyId
from ringback.domain.principal import Principal, Surface

AUDIT_DETAIL_LENGTH_MAX: Final = 500
AUDIT_ENTRIES_MAX: Final = 1_000_000
"""Entries of one owner, some 200 MB: eight changes a minute for 90 days. A client that changes its webhook in a loop would fill
the disk within the retention. It is not refused, because it may also have to remove, rotate, cancel or erase something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    seq: int
    """Assigned by the store; 0 before that."""
    at: datetime
    principal: Principal | None
    """Who changed it. None for an operator with access to the database."""
    key_id: KeyId | None
    """None if the request had an access token, or if authentication is off."""
    surface: Surface
    operation: str
    """The id of the operation in the OpenAPI document, also if another surface ran it."""
    target: str | None
    """The id or the name of what was changed."""
    owner: Principal | None
    """Who owns what was changed; None if the service does."""
    detail: str | None = None
    """What changed, in the service's own words."""


class AuditRows(Protocol):
    async def append(self, entry: AuditEntry) -> None:
        """Add the entry. Of an owner that has more than `AUDIT_ENTRIES_MAX`, the oldest are removed."""
        ...

    async def list_page(self, owner: Principal | None, *, position: int | None, limit: int) -> Page[AuditEntry, int]:
        """Entries about what this principal owns (None: all entries), newest first, from after the entry `position`."""
        ...

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        """Remove entries that are older than `cutoff`."""
        ...
