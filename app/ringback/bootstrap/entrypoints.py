"""The entry points: authentication, REST, the MCP endpoints."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from functools import partial

from starlette.routing import BaseRoute

from ringback.api.context import ApiConfig
from ringback.api.login_pages import LoginPageConfig
from ringback.bootstrap.components import Components
from ringback.bootstrap.configuration import build_protected_resource, build_target_policy
from ringback.bootstrap.policies import build_gateway_config, build_token_policy
from ringback.domain.clock import Clock, seconds
from ringback.domain.clock_confirmation import AHEAD_SECONDS_MAX
from ringback.domain.principal import Authenticator
from ringback.domain.roles import ALL_ROLES, Role
from ringback.identity.access_tokens import AccessTokenAuthenticator
from ringback.identity.authenticators import AnonymousAuthenticator, BearerAuthenticator
from ringback.identity.issuer import IssuerKeys
from ringback.identity.issuer_documents import create_issuer_client as issuer_client
from ringback.identity.issuer_sign_in import IssuerSignIn, SignInClient
from ringback.keyring import load_signing_keys
from ringback.mcp_server.elicitation_ids import ElicitationIds
from ringback.mcp_server.gateway import Gateway
from ringback.mcp_server.server import BackgroundTaskSet, McpServer
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.notifier.http.guard import find_target_error
from ringback.services.events.change_demands import ChangeDemands
from ringback.services.events.event_lookups import EventLookups
from ringback.services.logins.login_states import LoginStates
from ringback.services.mcp_sessions import McpSessions
from ringback.services.node_signals import NodeSignals
from ringback.services.services import Services
from ringback.services.upstreams.tool_aliases import ToolAliases
from ringback.settings import Settings
from ringback.supervisor import Supervisor, Worker
from ringback.ui.context import UiContext
from ringback.ui.routes import make_ui_routes
from ringback.upstreams.catalog.argument_validation import ArgumentSchemas


@asynccontextmanager
async def open_authenticator(
    components: Components, services: Services, settings: Settings
) -> AsyncGenerator[Authenticator]:
    if settings.auth == "off":
        yield AnonymousAuthenticator()
        return
    if settings.oidc_issuer is None:
        yield BearerAuthenticator(keys=services.api_keys)
        return
    async with (
        aclosing(ConfiguredHosts(components.environment.host_resolver)) as hosts,
        issuer_client(hosts.look_up_for("issuer"), components.authorities) as http,
    ):
        clock = components.clock
        issuer = IssuerKeys(settings.oidc_issuer, http=http, clock=clock)
        tokens = AccessTokenAuthenticator(issuer=issuer, policy=build_token_policy(settings), clock=clock)
        yield BearerAuthenticator(keys=services.api_keys, tokens=tokens)


@asynccontextmanager
async def open_issuer_sign_in(components: Components, settings: Settings) -> AsyncGenerator[IssuerSignIn | None]:
    """None unless the dashboard is registered at the issuer."""
    if settings.auth == "off" or not settings.ui or settings.oidc_issuer is None or settings.ui_oidc_client_id is None:
        yield None
        return
    secret = settings.ui_oidc_client_secret
    client = SignInClient(
        client_id=settings.ui_oidc_client_id,
        client_secret=None if secret is None else secret.get_secret_value(),
        redirect_uri=f"{settings.base_url}/ui/sign-in/callback",
        resource=settings.base_url,
        requests_scopes=not settings.oidc_scopes,
    )
    environment = components.environment
    async with (
        aclosing(ConfiguredHosts(environment.host_resolver)) as hosts,
        issuer_client(hosts.look_up_for("issuer"), components.authorities) as http,
    ):
        yield IssuerSignIn(
            settings.oidc_issuer, client, http=http, clock=environment.clock, random_bytes=environment.random_bytes
        )


@asynccontextmanager
async def open_mcp_server(
    components: Components, services: Services, settings: Settings, authenticator: Authenticator
) -> AsyncGenerator[McpServer]:
    workers = BackgroundTaskSet()
    server = McpServer(_build_gateway(components, services, settings, workers), authenticator=authenticator)
    async with server.run():
        try:
            yield server
        finally:
            await workers.aclose()


def _build_gateway(
    components: Components, services: Services, settings: Settings, background_tasks: BackgroundTaskSet
) -> Gateway:
    return Gateway(
        config=build_gateway_config(settings),
        calls=services.calls,
        input_answers=services.input_answers,
        registrations=services.registrations,
        webhooks=services.webhooks,
        events=services.events,
        change_demands=ChangeDemands(
            store=components.store,
            clock=components.clock,
            ids=components.ids,
            catalog=components.tool_catalog,
        ),
        event_lookups=EventLookups(store=components.store),
        event_polls=services.event_polls,
        event_streams=services.event_streams,
        event_types=services.event_types,
        event_subscriptions=services.event_subscriptions,
        find_argument_error=ArgumentSchemas().find_error,
        find_callback_url_error=partial(find_target_error, build_target_policy(settings)),
        call_resumption=services.call_resumption,
        call_resumes=services.call_resumes,
        lifecycle=services.lifecycle,
        quotas=components.quotas,
        body_admission=services.body_admission,
        check_limiter=services.check_limiter,
        catalog=components.tool_catalog,
        upstream_controls=services.upstream_controls,
        proxy=components.upstreams.proxy,
        call_notifications=components.upstreams.notification_hub,
        list_instances=components.upstreams.instances.list_ids,
        tool_aliases=ToolAliases(components.store),
        sessions=McpSessions(components.store, ids=components.ids),
        signals=components.store.signals,
        node_signals=NodeSignals(components.store),
        elicitation_ids=ElicitationIds(components.ids),
        login_states=LoginStates(components.store, public_url=settings.base_url),
        sealer=components.sealer,
        ids=components.ids,
        clock=components.clock,
        background_tasks=background_tasks,
    )


def build_api_config(
    settings: Settings,
    supervisor: Supervisor,
    workers: Mapping[Role, Sequence[Worker]],
    authenticator: Authenticator,
    mcp: McpServer,
    clock: Clock,
) -> ApiConfig:
    return ApiConfig(
        authenticator=authenticator,
        oauth=build_protected_resource(settings),
        public_url=settings.base_url,
        allowed_origins=settings.allowed_origins,
        allowed_hosts=settings.allowed_hosts,
        trusted_proxies=settings.trusted_proxies,
        client_requests_max=settings.peer_connections_max,
        request_bytes_max=settings.request_bytes_max,
        failing_workers=supervisor.failing_workers,
        workers_by_role={
            role: frozenset(worker.name for worker in workers.get(role, ()))
            for role in ALL_ROLES
            if role in settings.roles
        },
        failing_endpoints=mcp.failing_endpoints,
        has_confirmed_clock=lambda: clock.confirmed_now() >= clock.now() - seconds(AHEAD_SECONDS_MAX),
        public_keys=[key.jwk for key in load_signing_keys(settings)],
    )


def build_login_pages(components: Components, settings: Settings) -> LoginPageConfig:
    return LoginPageConfig(
        sealer=components.sealer,
        clock=components.clock,
        requires_key=settings.auth != "off",
        redirect_urls=settings.login_redirect_urls,
    )


def build_ui_routes(
    components: Components,
    services: Services,
    settings: Settings,
    config: ApiConfig,
    issuer_sign_in: IssuerSignIn | None = None,
) -> Sequence[BaseRoute]:
    """The routes of the dashboard; none if it is off."""
    if not settings.ui:
        return ()
    return make_ui_routes(
        UiContext(
            services=services,
            config=config,
            sealer=components.sealer,
            clock=components.clock,
            requires_key=settings.auth != "off",
            issuer_sign_in=issuer_sign_in,
            portal_origins=settings.portal_origins,
        )
    )
