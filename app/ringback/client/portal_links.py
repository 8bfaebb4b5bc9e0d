"""The client's methods about portal links and the audit log."""

from collections.abc import AsyncGenerator

from ringback.client.administration_models import (
    AuditEntry,
    AuditPage,
    CreatedPortalLink,
    PortalLink,
    PortalLinkPage,
)
from ringback.client.resource_client import ResourceClient, quote_path_segment, without_none


class PortalLinkMethods(ResourceClient):
    async def create_portal_link(
        self, *, client_session_id: str | None = None, expires_in_seconds: int | None = None
    ) -> CreatedPortalLink:
        """Create a link that shows your pages of the dashboard, or those of one client session, without a key.

        It ends after an hour by default, a day at most, and with your key. The returned `url` is shown only once.
        """
        body = without_none({"client_session_id": client_session_id, "expires_in_seconds": expires_in_seconds})
        return await self._transport.fetch_model(CreatedPortalLink, "POST", "/v1/portal-links", body=body)

    async def portal_links(self) -> AsyncGenerator[PortalLink]:
        """Your portal links, newest first, without their URLs."""
        async for page in self._iterate_pages(PortalLinkPage, "/v1/portal-links", {}):
            for link in page.portal_links:
                yield link

    async def delete_portal_link(self, link_id: str) -> None:
        """Delete a portal link: it shows nothing any more."""
        await self._transport.send_request("DELETE", f"/v1/portal-links/{quote_path_segment(link_id)}")

    async def audit_entries(self) -> AsyncGenerator[AuditEntry]:
        """Who changed what you own, newest first."""
        async for page in self._iterate_pages(AuditPage, "/v1/audit", {}):
            for entry in page.entries:
                yield entry
