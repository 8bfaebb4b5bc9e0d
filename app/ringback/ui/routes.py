"""All routes of the dashboard."""

from starlette.routing import BaseRoute

from ringback.api.public_path import read_public_path
from ringback.ui.assets import ASSET_ROUTES
from ringback.ui.audit_pages import AuditPages
from ringback.ui.call_pages import CallPages
from ringback.ui.context import UiContext
from ringback.ui.home_pages import HomePages
from ringback.ui.missing_pages import MissingPages
from ringback.ui.page_routes import PageRoutes
from ringback.ui.portal_pages import PortalPages
from ringback.ui.rendering import Renderer
from ringback.ui.sign_in_pages import SignInPages


def make_ui_routes(context: UiContext) -> list[BaseRoute]:
    renderer = Renderer(public_path=read_public_path(context.config.public_url), portal_origins=context.portal_origins)
    pages = PageRoutes(context, renderer)
    return [
        *ASSET_ROUTES,
        *SignInPages(context, renderer, pages).make_routes(pages),
        *PortalPages(context, renderer, pages).make_routes(pages),
        *HomePages(context, renderer).make_routes(pages),
        *CallPages(context, renderer).make_routes(pages),
        *AuditPages(context, renderer).make_routes(pages),
        *MissingPages().make_routes(pages),
    ]
