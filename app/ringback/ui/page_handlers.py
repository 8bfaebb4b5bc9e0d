"""What the handlers of all pages share: the services, the templates, and whose rows a viewer reads.

A viewer with the scope `admin` reads the rows of all principals, and acts for the owner of an object. Each such request has a
line in the audit log (`services.access.operators`).
"""

from contextlib import suppress

from starlette.requests import Request

from ringback.domain.errors import CallExpired, NotFound
from ringback.domain.principal import ALL_PRINCIPALS, Caller
from ringback.ui.call_filters import read_principal
from ringback.ui.context import UiContext
from ringback.ui.rendering import Renderer
from ringback.ui.viewer import Viewer


class PageHandlers:
    def __init__(self, context: UiContext, renderer: Renderer) -> None:
        self._context = context
        self._services = context.services
        self._renderer = renderer

    def _view_rows(self, viewer: Viewer, request: Request, operation: str, *, repeats: bool = False) -> Caller:
        """The caller of a list: for an operator all principals, or the one that the query parameter `principal` names.

        `repeats`: an open page repeats the request by itself. Raises `InvalidRequest` for what no principal can be called.
        """
        if not viewer.is_operator:
            return viewer.caller
        principal = read_principal(request.query_params) or ALL_PRINCIPALS
        return self._services.operators.view_principal(viewer.caller, principal, operation=operation, repeats=repeats)

    async def _act_for_owner(self, viewer: Viewer, target: str, operation: str, *, repeats: bool = False) -> Caller:
        """The caller of an operation on one object; `repeats` as for `_view_rows`.

        Raises `NotFound` if no principal has an object with this id.
        """
        if not viewer.is_operator:
            return viewer.caller
        return await self._services.operators.act_for_owner(
            viewer.caller, ALL_PRINCIPALS, operation=operation, target=target, repeats=repeats
        )

    def _shows_owner(self, viewer: Viewer) -> bool:
        """Whether lists may have rows of several principals. Without authentication there is only one."""
        return viewer.is_operator and self._context.requires_key

    def _find_path(self, viewer: Viewer, path: str) -> str:
        """The path of a page, from the root of its host; `path` is below the dashboard's."""
        return f"{self._renderer.find_path(viewer)}{path}"

    async def _require_session_of_call(self, viewer: Viewer, caller: Caller, call_id: str | None) -> None:
        """Raise `NotFound` unless the viewer may see deliveries of this call. A link to one client session shows no others."""
        if viewer.client_session_id is None:
            return
        session = None
        if call_id is not None:
            with suppress(NotFound, CallExpired):
                session = (await self._services.calls.get_call(caller, call_id)).client_session_id
        viewer.require_client_session(session)
