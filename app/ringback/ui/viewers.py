"""Finds the viewer of a request by its path and its cookies.

    /ui/calls                    cookie of a sign-in: the caller of its key, or of its access token
                                 authentication is off: the anonymous principal
    /ui/portal/link_…/calls      cookie of this portal link: reads what the link shows

The pages of a link have a path of their own, so a browser shows several links at once, and a sign-in beside them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from ringback.api.public_path import read_public_path
from ringback.domain.principal import Surface
from ringback.domain.protected_resource import REST_RESOURCE
from ringback.services.access.portal_links import PortalCaller
from ringback.ui.context import UiContext
from ringback.ui.redirects import PORTAL_PATH
from ringback.ui.viewer import Viewer
from ringback.ui.viewer_cookies import ViewerCookies, derive_form_token

LINK_PARAMETER: Final = "link_id"
"""Of the paths of pages of a portal link."""
ANONYMOUS_FORM_TOKEN: Final = "anonymous"  # noqa: S105 - no secret, see below
"""Without authentication a form is protected by the Origin check alone, as the REST API is."""


class Viewers:
    def __init__(self, context: UiContext) -> None:
        self._context = context
        portal_path = f"{read_public_path(context.config.public_url)}{PORTAL_PATH}"
        self.cookies = ViewerCookies(is_secure=context.is_secure, portal_path=portal_path)

    async def find_viewer(self, request: Request) -> Viewer | None:
        """The viewer of this request; None without a cookie that counts."""
        link_id = find_link_id(request)
        if link_id is not None:
            return await self._find_portal(request.headers, link_id)
        if not self._context.requires_key:
            caller = await self._context.config.authenticator.authenticate(None, resource=REST_RESOURCE)
            return Viewer(caller=replace(caller, surface=Surface.UI), form_token=ANONYMOUS_FORM_TOKEN)
        return await self._find_signed_in(request.cookies)

    async def end_sign_in(self, request: Request, response: Response) -> None:
        """End the sign-in of this browser, if it has one, in the store and in the browser."""
        secret = self.cookies.sign_in.read_secret(request.cookies)
        if secret is not None:
            await self._context.services.sign_ins.sign_out(secret)
            self.cookies.sign_in.delete(response)

    async def _find_signed_in(self, cookies: Mapping[str, str]) -> Viewer | None:
        secret = self.cookies.sign_in.read_secret(cookies)
        caller = None if secret is None else await self._context.services.sign_ins.find_caller(secret)
        if secret is None or caller is None:
            return None
        return Viewer(caller=caller, form_token=derive_form_token(secret), is_signed_in=True)

    async def _find_portal(self, headers: Headers, link_id: str) -> Viewer | None:
        for secret in self.cookies.portal.read_secrets(headers):
            found = await self._context.services.portal_links.find_caller(secret)
            if found is not None and found.link_id == link_id:
                return _make_portal_viewer(found)
        return None


def _make_portal_viewer(found: PortalCaller) -> Viewer:
    return Viewer(
        caller=found.caller, form_token="", client_session_id=found.client_session_id, portal_link_id=found.link_id
    )


def find_link_id(request: Request) -> str | None:
    """The portal link whose page the path names; None for a page outside of links."""
    return request.path_params.get(LINK_PARAMETER)
