"""Portal links: make one, list them, delete one, and find the caller of a browser that has one (`domain.portal_links`).

A link shows what its maker may read: the scope `read`, of the same principal, and for as long as the maker's key is valid. A
maker with an access token has no key, and tokens of programs live for minutes: its link lives as long as it asked for. A link
grants nothing that its maker does not have. A key for some upstreams reads the calls of every upstream of its principal, and so
does its link; of the upstreams themselves both see only those.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from ringback.domain.clock import seconds
from ringback.domain.clock_confirmation import is_of_wrong_clock
from ringback.domain.cursor import Page
from ringback.domain.errors import Forbidden, InvalidRequest, NotFound, QuotaExceeded
from ringback.domain.ids import IdGenerator, PortalLinkId, is_well_formed_id
from ringback.domain.portal_links import PORTAL_LINKS_MAX, PortalLink
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Caller, Scope, Surface
from ringback.services.access.api_keys import require_held_key
from ringback.services.access.sign_ins import find_viewing_caller
from ringback.services.audit import record_own_change
from ringback.signing import secrets

_READING_SCOPES: Final = frozenset({Scope.READ, Scope.METRICS})
_NO_LINK: Final = "No portal link of yours has this id. List them: GET /v1/portal-links"


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedPortalLink:
    link: PortalLink
    url: str = field(repr=False)
    """Who has it sees the pages. It is shown only once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalCaller:
    link_id: PortalLinkId
    caller: Caller
    client_session_id: str | None
    expires_at: datetime


class PortalLinks:
    def __init__(self, *, store: Store, ids: IdGenerator, portal_url: str, has_dashboard: bool = True) -> None:
        """`portal_url`: where the dashboard opens links. `has_dashboard`: whether this service shows it."""
        self._store = store
        self._ids = ids
        self._portal_url = portal_url
        self._has_dashboard = has_dashboard

    async def create_link(
        self, caller: Caller, *, client_session_id: str | None, lifetime_seconds: float
    ) -> CreatedPortalLink:
        """Make a link to the pages of the caller's principal, or of one of its client sessions."""
        caller.require_scope(Scope.READ)
        if not self._has_dashboard:
            raise InvalidRequest(
                "The dashboard is off, so a link would show nothing. Let the operator set RINGBACK_UI=on."
            )
        secret = secrets.generate_browser_secret(self._ids.random_bytes(secrets.BROWSER_SECRET_BYTES))

        async def insert(tx: Transaction) -> PortalLink:
            await require_held_key(tx, caller)
            await _require_quota(tx, caller)
            link = self._build_link(tx, caller, client_session_id, secret, lifetime_seconds)
            await tx.portal_links.insert(link)
            await record_own_change(tx, caller, "create_portal_link", link.id)
            return link

        link = await self._store.write_for(caller.principal, insert)
        return CreatedPortalLink(link=link, url=f"{self._portal_url}?link={secret}")

    async def list_links(self, caller: Caller, *, position: str | None, limit: int) -> Page[PortalLink, str]:
        """Links that have not expired, or only just now, newest first."""
        caller.require_scope(Scope.READ)
        return await self._store.scan(
            caller.principal,
            lambda tx: tx.portal_links.list_page(caller.listed_principal, position=position, limit=limit),
        )

    async def delete_link(self, caller: Caller, link_id: str) -> None:
        """End the link, also in the browsers that have opened it."""
        caller.require_scope(Scope.READ)

        async def delete(tx: Transaction) -> None:
            link = await tx.portal_links.get(PortalLinkId(link_id)) if is_well_formed_id("link", link_id) else None
            if link is None or link.principal != caller.principal:
                raise NotFound(_NO_LINK)
            _require_deletable(caller, link)
            if not await tx.portal_links.delete(link.id):
                raise NotFound(_NO_LINK)
            await record_own_change(tx, caller, "delete_portal_link", link.id)

        await self._store.write_for(caller.principal, delete)

    async def find_caller(self, secret: str) -> PortalCaller | None:
        """Who looks with this secret; None if its link, or the key that made it, has ended."""
        if not secrets.is_well_formed_browser_secret(secret):
            return None
        return await self._store.read(lambda tx: _find_portal_caller(tx, secret))

    def _build_link(
        self, tx: Transaction, caller: Caller, client_session_id: str | None, secret: str, lifetime_seconds: float
    ) -> PortalLink:
        maker = caller.operator or caller
        return PortalLink(
            id=self._ids.new_portal_link_id(),
            secret_hash=secrets.hash_browser_secret(secret),
            principal=caller.principal,
            client_session_id=client_session_id,
            upstreams=caller.upstreams,
            created_by=maker.principal,
            key_id=maker.key_id,
            created_at=tx.now(),
            expires_at=tx.now() + seconds(lifetime_seconds),
        )


def _require_deletable(caller: Caller, link: PortalLink) -> None:
    """Raise `Forbidden` if the key may only read and the link was made with another key."""
    if link.key_id != caller.key_id and caller.scopes <= _READING_SCOPES:
        raise Forbidden(
            "This link was made with another key, and yours may only read. Use a key that may change something."
        )


async def _require_quota(tx: Transaction, caller: Caller) -> None:
    """Under the lock of the log, so that links that are made at the same time count each other."""
    await tx.event_log.get_head(caller.principal, lock=True)
    if await tx.portal_links.count(caller.principal, limit=PORTAL_LINKS_MAX) >= PORTAL_LINKS_MAX:
        raise QuotaExceeded(
            f"There are {PORTAL_LINKS_MAX} portal links already. Delete some (DELETE /v1/portal-links/{{id}}), or make them "
            "expire earlier: expires_in_seconds.",
            retry_after_seconds=60,
        )


async def _find_portal_caller(tx: Transaction, secret: str) -> PortalCaller | None:
    link = await tx.portal_links.find_by_hash(secrets.hash_browser_secret(secret), now=tx.now())
    if link is None or is_of_wrong_clock(link.created_at, now=tx.now()):
        return None  # of a clock that was far ahead: it would last for as long as the clock was wrong
    if link.key_id is not None and await find_viewing_caller(tx, link.key_id) is None:
        return None
    caller = Caller(
        principal=link.principal,
        scopes=frozenset({Scope.READ}),
        upstreams=link.upstreams,
        surface=Surface.UI,
    )
    return PortalCaller(
        link_id=link.id, caller=caller, client_session_id=link.client_session_id, expires_at=link.expires_at
    )
