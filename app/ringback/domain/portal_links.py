"""Portal links: URLs that show one principal's pages of the dashboard, or those of one client session, without a key.

A product embeds them for its own users. A link only reads, is valid for a day at most, and ends at once when it is deleted,
when the key that made it is revoked or expires, and when its principal or its session is erased. The store has the hash of its
secret.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol

from ringback.domain.cursor import Page
from ringback.domain.ids import KeyId, PortalLinkId
from ringback.domain.principal import Principal

PORTAL_LINK_SECONDS_MIN: Final = 60
PORTAL_LINK_SECONDS_MAX: Final = 86_400
PORTAL_LINK_SECONDS_DEFAULT: Final = 3_600
PORTAL_LINKS_MAX: Final = 10_000
"""Links of one principal that have not expired: one for each of its users who looks within a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalLink:
    id: PortalLinkId
    secret_hash: str = field(repr=False)
    principal: Principal
    """Whose pages it shows."""
    client_session_id: str | None
    """The only client session that it shows; None for all pages."""
    upstreams: frozenset[str] | None
    """The upstreams that its page of upstreams shows; None means all. Calls of the principal are shown whatever their upstream,
    as to the key that made the link."""
    created_by: Principal
    key_id: KeyId | None
    """The key that made it. None if an access token did, or if authentication is off."""
    created_at: datetime
    expires_at: datetime


class PortalLinkRows(Protocol):
    async def insert(self, link: PortalLink) -> None: ...

    async def get(self, link_id: PortalLinkId) -> PortalLink | None: ...

    async def find_by_hash(self, secret_hash: str, *, now: datetime) -> PortalLink | None:
        """The link with this secret; None if it has expired."""
        ...

    async def list_page(
        self, principal: Principal | None, *, position: str | None, limit: int
    ) -> Page[PortalLink, str]:
        """Links of this principal (None: of all), newest first, from after the link with the id `position`."""
        ...

    async def count(self, principal: Principal, *, limit: int) -> int:
        """The links of the principal, `limit` at most."""
        ...

    async def delete(self, link_id: PortalLinkId) -> bool: ...

    async def delete_of_session(
        self, principal: Principal, client_session_id: str, *, until: datetime, limit: int
    ) -> int:
        """Delete links to this client session that are not newer than `until`, the oldest first. Return how many."""
        ...

    async def remove_expired(self, *, now: datetime, limit: int) -> int: ...
