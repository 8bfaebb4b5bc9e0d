"""All routes of the dashboard."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ringback.api.public_path import read_public_path
from ringback.domain.errors import NotFound
from ringback.ui.assets import ASSET_ROUTES
from ringback.ui.context import UiContext
from ringback.ui.page_routes import PageRoutes
from ringback.ui.pages.audit import AuditPages
from ringback.ui.pages.calls import CallPages
from ringback.ui.pages.deliveries import DeliveryPages
from ringback.ui.pages.events import EventPages
from ringback.ui.pages.home import HomePages
from ringback.ui.pages.issuer_sign_in import IssuerPages
from ringback.ui.pages.live import LivePages
from ringback.ui.pages.lookup import LookupPages
from ringback.ui.pages.portal import PortalPages
from ringback.ui.pages.redelivery import RedeliveryPages
from ringback.ui.pages.sessions import SessionPages
from ringback.ui.pages.sign_in import SignInPages
from ringback.ui.pages.tools import ToolPages
from ringback.ui.pages.upstreams import UpstreamPages
from ringback.ui.pages.webhook_actions import WebhookActions
from ringback.ui.pages.webhook_form import WebhookFormPages
from ringback.ui.pages.webhooks import WebhookPages
from ringback.ui.rendering import Renderer
from ringback.ui.viewer import Viewer


def make_ui_routes(context: UiContext) -> list[BaseRoute]:
    renderer = Renderer(public_path=read_public_path(context.config.public_url), portal_origins=context.portal_origins)
    pages = PageRoutes(context, renderer)
    portal = PortalPages(context, renderer, pages).make_routes(pages)
    own: list[BaseRoute] = [
        *ASSET_ROUTES,
        *SignInPages(context, renderer, pages).make_routes(pages),
        *IssuerPages(context, pages).make_routes(pages),
        *HomePages(context, renderer).make_routes(pages),
        *LivePages(context, renderer, pages).make_routes(pages),
        *CallPages(context, renderer).make_routes(pages),
        *AuditPages(context, renderer).make_routes(pages),
        *LookupPages(context, renderer).make_routes(pages),
        *SessionPages(context, renderer).make_routes(pages),
        *WebhookPages(context, renderer).make_routes(pages),
        *WebhookFormPages(context, renderer).make_routes(pages),
        *WebhookActions(context, renderer).make_routes(pages),
        *RedeliveryPages(context, renderer).make_routes(pages),
        *DeliveryPages(context, renderer).make_routes(pages),
        *UpstreamPages(context, renderer).make_routes(pages),
        *ToolPages(context, renderer).make_routes(pages),
        *EventPages(context, renderer).make_routes(pages),
        pages.page("/{path:path}", show_missing, in_session_portal=True),  # the last: it matches every path
    ]
    return [*portal, *pages.portal_routes, *own]


async def show_missing(request: Request, viewer: Viewer) -> Response:
    """What the dashboard shows at a path that no page has."""
    del request, viewer
    raise NotFound("The dashboard has no page at this address. Its sections are the links above.")
