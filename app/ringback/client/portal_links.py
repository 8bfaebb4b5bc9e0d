"""The client's methods about portal links and the audit log."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from ringback.client.arguments import quote_path_segment
from ringback.client.resource_client import ResourceClient, without_none
from ringback.lazy_names import LazyModule

if TYPE_CHECKING:
    from ringback.client import administration_models
else:
    administration_models = LazyModule("ringback.client.administration_models")


class PortalLinkMethods(ResourceClient):
    async def create_portal_link(
        self, *, client_session_id: str | None = None, expires_in_seconds: int | None = None
    ) -> administration_models.CreatedPortalLink:
        """Create a link that shows your pages of the dashboard, or those of one client session, without a key.

        It ends after an hour by default, a day at most, and with your key. The returned `url` is shown only once.
        """
        body = without_none({"client_session_id": client_session_id, "expires_in_seconds": expires_in_seconds})
        return await self._transport.fetch_model(
            administration_models.CreatedPortalLink, "POST", "/v1/portal-links", body=body
        )

    async def portal_links(self) -> AsyncGenerator[administration_models.PortalLink]:
        """Your portal links, newest first, without their URLs."""
        async for page in self._iterate_pages(administration_models.PortalLinkPage, "/v1/portal-links", {}):
            for link in page.portal_links:
                yield link

    async def delete_portal_link(self, link_id: str) -> None:
        """Delete a portal link: it shows nothing any more."""
        await self._transport.send_request("DELETE", f"/v1/portal-links/{quote_path_segment(link_id, 'link_id')}")

    async def audit_entries(self) -> AsyncGenerator[administration_models.AuditEntry]:
        """Who changed what you own, newest first."""
        async for page in self._iterate_pages(administration_models.AuditPage, "/v1/audit", {}):
            for entry in page.entries:
                yield entry
