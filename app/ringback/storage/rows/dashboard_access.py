"""Sign-ins to the dashboard, portal links, and the audit log."""

from datetime import datetime
from typing import Final

from ringback.domain.audit import AUDIT_ENTRIES_MAX, AuditEntry
from ringback.domain.cursor import Page
from ringback.domain.ids import PortalLinkId
from ringback.domain.portal_links import PortalLink
from ringback.domain.principal import Principal
from ringback.domain.sign_ins import SignIn
from ringback.storage.rows.columns import RECORDS, instant_to_column
from ringback.storage.rows.paging import fetch_indexed_page
from ringback.storage.rows.unit import SqlRows


class SqlSignIns(SqlRows, noun="sign_ins"):
    """Implements `domain.sign_ins.SignInRows`."""

    async def insert(self, sign_in: SignIn) -> None:
        await self._sql.execute("insert", **RECORDS.sign_in.encode(sign_in))

    async def find_by_hash(self, secret_hash: str, *, now: datetime) -> SignIn | None:
        return await self._sql.fetch_record(
            "by_hash", RECORDS.sign_in, secret_hash=secret_hash, now=instant_to_column(now)
        )

    async def delete(self, secret_hash: str) -> None:
        await self._sql.execute("delete", secret_hash=secret_hash)

    async def remove_oldest(self, principal: Principal, *, kept: int) -> None:
        await self._sql.execute("remove_oldest", principal=principal, sign_ins_kept=kept)

    async def remove_expired(self, *, now: datetime, limit: int) -> int:
        return await self._sql.execute("remove_expired", now=instant_to_column(now), limit=limit)


class SqlPortalLinks(SqlRows, noun="portal_links"):
    """Implements `domain.portal_links.PortalLinkRows`."""

    async def insert(self, link: PortalLink) -> None:
        await self._sql.execute("insert", **RECORDS.portal_link.encode(link))

    async def get(self, link_id: PortalLinkId) -> PortalLink | None:
        return await self._sql.fetch_record("by_id", RECORDS.portal_link, id=link_id)

    async def find_by_hash(self, secret_hash: str, *, now: datetime) -> PortalLink | None:
        return await self._sql.fetch_record(
            "by_hash", RECORDS.portal_link, secret_hash=secret_hash, now=instant_to_column(now)
        )

    async def list_page(
        self, principal: Principal | None, *, position: str | None, limit: int
    ) -> Page[PortalLink, str]:
        to_link = RECORDS.portal_link.decode
        if principal is None:
            return await fetch_indexed_page(self._sql, "page", to_link, before=position, limit=limit)
        return await fetch_indexed_page(
            self._sql, "page_of_principal", to_link, principal=principal, before=position, limit=limit
        )

    async def count(self, principal: Principal, *, limit: int) -> int:
        (row,) = await self._sql.fetch_all("count", principal=principal, limit=limit)
        count: int = row["links"]
        return count

    async def delete(self, link_id: PortalLinkId) -> bool:
        return await self._sql.execute("delete", id=link_id) == 1

    async def delete_of_session(
        self, principal: Principal, client_session_id: str, *, until: datetime, limit: int
    ) -> int:
        return await self._sql.execute(
            "delete_of_session",
            principal=principal,
            client_session_id=client_session_id,
            until=instant_to_column(until),
            limit=limit,
        )

    async def remove_expired(self, *, now: datetime, limit: int) -> int:
        return await self._sql.execute("remove_expired", now=instant_to_column(now), limit=limit)


_REMOVED_WITH_ONE: Final = 2
"""The oldest entries of an owner that are removed with each new one, so that too many become fewer."""


class SqlAuditEntries(SqlRows, noun="audit_entries"):
    """Implements `domain.audit.AuditRows`."""

    async def append(self, entry: AuditEntry) -> None:
        await self._sql.execute("append", **RECORDS.audit_entry.encode_for(self._sql.parameters("append"), entry))
        if entry.owner is not None:
            bounds = {"entries_max": AUDIT_ENTRIES_MAX, "limit": _REMOVED_WITH_ONE}
            await self._sql.execute("remove_beyond", owner=entry.owner, **bounds)

    async def list_page(self, owner: Principal | None, *, position: int | None, limit: int) -> Page[AuditEntry, int]:
        where = {"before_seq": _NEWEST if position is None else position, "limit": limit + 1}
        if owner is None:
            found = await self._sql.fetch_records("page", RECORDS.audit_entry, **where)
        else:
            found = await self._sql.fetch_records("page_of_owner", RECORDS.audit_entry, owner=owner, **where)
        return Page(found[:limit], next_position=found[limit - 1].seq if len(found) > limit else None)

    async def remove(self, *, cutoff: datetime, limit: int) -> int:
        return await self._sql.execute("remove", older_than=instant_to_column(cutoff), limit=limit)


_NEWEST = 2**63 - 1
"""Greater than every number of an entry."""
