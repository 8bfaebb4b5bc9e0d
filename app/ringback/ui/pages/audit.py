"""The audit log: who changed what."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ringback.domain.cursor import CursorList, decode_number_cursor, encode_cursor
from ringback.domain.errors import NotFound
from ringback.domain.ids import is_webhook_id, is_well_formed_id
from ringback.ui.page_handlers import PageHandlers
from ringback.ui.page_routes import PageRoutes
from ringback.ui.query_parameters import require_known_filters, with_query
from ringback.ui.viewer import Viewer

PAGE_SIZE = 50


class AuditPages(PageHandlers):
    def make_routes(self, pages: PageRoutes) -> list[Route]:
        return [pages.page("/audit", self.list_entries)]

    async def list_entries(self, request: Request, viewer: Viewer) -> Response:
        if viewer.is_portal:
            raise NotFound("A portal link does not show the audit log.")
        require_known_filters(request.query_params, ())
        caller = self._view_rows(viewer, request, "ui_list_audit_entries")
        cursor = request.query_params.get("cursor")
        page = await self._services.audit_log.list_entries(
            caller, position=decode_number_cursor(CursorList.AUDIT, cursor), limit=PAGE_SIZE
        )
        end, principal = page.next_position, request.query_params.get("principal")
        path = self._find_path(viewer, "/audit")
        newest = with_query(path, {"principal": principal})
        return self._renderer.render_page(
            "audit.html",
            viewer,
            title="Audit",
            rows=[(entry, _find_page(entry.target)) for entry in page],
            newest=newest if cursor is not None else None,
            older=None
            if end is None
            else with_query(path, {"principal": principal, "cursor": encode_cursor(CursorList.AUDIT, str(end))}),
        )


def _find_page(target: str | None) -> str | None:
    """The path of the page about the target below the dashboard's; None if there is none."""
    if target is None:
        return None
    if is_webhook_id(target):
        return f"/webhooks/{target}"
    pages = {"call": "/calls/", "dlv": "/deliveries/"}
    return next((path + target for prefix, path in pages.items() if is_well_formed_id(prefix, target)), None)
