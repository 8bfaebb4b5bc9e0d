"""All routes of the dashboard."""

import os
from collections.abc import Callable

from starlette.routing import BaseRoute

from ringback.api.public_path import read_public_path
from ringback.ui.assets import ASSET_ROUTES
from ringback.ui.audit_pages import AuditPages
from ringback.ui.call_pages import CallPages
from ringback.ui.context import UiContext
from ringback.ui.delivery_pages import DeliveryPages
from ringback.ui.event_pages import EventPages
from ringback.ui.home_pages import HomePages
from ringback.ui.issuer_pages import IssuerPages
from ringback.ui.live_pages import LivePages
from ringback.ui.lookup_pages import LookupPages
from ringback.ui.missing_pages import MissingPages
from ringback.ui.page_routes import PageRoutes
from ringback.ui.portal_pages import PortalPages
from ringback.ui.redelivery_pages import RedeliveryPages
from ringback.ui.rendering import Renderer
from ringback.ui.session_pages import SessionPages
from ringback.ui.sign_in_pages import SignInPages
from ringback.ui.tool_pages import ToolPages
from ringback.ui.upstream_pages import UpstreamPages
from ringback.ui.webhook_actions import WebhookActions
from ringback.ui.webhook_pages import WebhookPages


def make_ui_routes(context: UiContext, *, random_bytes: Callable[[int], bytes] = os.urandom) -> list[BaseRoute]:
    """`random_bytes`: for the idempotency keys of forms."""
    renderer = Renderer(public_path=read_public_path(context.config.public_url), portal_origins=context.portal_origins)
    pages = PageRoutes(context, renderer)
    return [
        *ASSET_ROUTES,
        *SignInPages(context, renderer, pages).make_routes(pages),
        *IssuerPages(context, pages).make_routes(pages),
        *PortalPages(context, renderer, pages).make_routes(pages),
        *HomePages(context, renderer).make_routes(pages),
        *LivePages(context, renderer).make_routes(pages),
        *CallPages(context, renderer).make_routes(pages),
        *AuditPages(context, renderer).make_routes(pages),
        *LookupPages(context, renderer).make_routes(pages),
        *SessionPages(context, renderer).make_routes(pages),
        *WebhookPages(context, renderer, random_bytes).make_routes(pages),
        *WebhookActions(context, renderer).make_routes(pages),
        *RedeliveryPages(context, renderer).make_routes(pages),
        *DeliveryPages(context, renderer).make_routes(pages),
        *UpstreamPages(context, renderer).make_routes(pages),
        *ToolPages(context, renderer, random_bytes).make_routes(pages),
        *EventPages(context, renderer).make_routes(pages),
        *MissingPages().make_routes(pages),
    ]
