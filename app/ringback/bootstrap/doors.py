"""Who is let in, and where: authentication, REST, the MCP endpoints."""

from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

from ringback.api.app import ApiConfig, Services
from ringback.bootstrap.parts import Parts
from ringback.bootstrap.policies import gateway_config, protected_resource, token_rules
from ringback.domain.principal import Authenticator
from ringback.identity.access_tokens import AccessTokens
from ringback.identity.bearers import Bearers, Everybody
from ringback.identity.documents import client as issuer_client
from ringback.identity.issuer import Issuer
from ringback.keyring import load_signing_keys
from ringback.mcp_server.endpoints import McpServer, Workers
from ringback.mcp_server.gateway import Gateway
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.services.joined_names import JoinedNames
from ringback.settings import Settings
from ringback.supervisor import Supervisor


@asynccontextmanager
async def authenticator_for(parts: Parts, services: Services, settings: Settings) -> AsyncGenerator[Authenticator]:
    if settings.auth == "off":
        yield Everybody()
        return
    if settings.oidc_issuer is None:
        yield Bearers(keys=services.keys)
        return
    async with (
        aclosing(ConfiguredHosts(parts.world.host_resolver)) as hosts,
        issuer_client(hosts.look_up_for("issuer")) as http,
    ):
        clock = parts.world.clock
        issuer = Issuer(settings.oidc_issuer, http=http, clock=clock)
        tokens = AccessTokens(issuer=issuer, rules=token_rules(settings), clock=clock)
        yield Bearers(keys=services.keys, tokens=tokens)


@asynccontextmanager
async def mcp_server(
    parts: Parts, services: Services, settings: Settings, authenticator: Authenticator
) -> AsyncGenerator[McpServer]:
    workers = Workers()
    gateway = Gateway(
        config=gateway_config(settings),
        calls=services.calls,
        answers=services.answers,
        webhooks=services.webhooks,
        events=services.events,
        resume=services.resume,
        lifecycle=services.lifecycle,
        quotas=parts.quotas,
        catalog=parts.upstreams.catalog,
        passage=parts.upstreams.passage,
        live=parts.upstreams.live,
        names=JoinedNames(parts.store),
        signals=parts.store.signals,
        sealer=parts.sealer,
        clock=parts.world.clock,
        background=workers,
    )
    server = McpServer(gateway, authenticator=authenticator)
    async with server.running():
        try:
            yield server
        finally:
            await workers.aclose()


def api_config(settings: Settings, supervisor: Supervisor, authenticator: Authenticator, mcp: McpServer) -> ApiConfig:
    return ApiConfig(
        authenticator=authenticator,
        oauth=protected_resource(settings),
        public_url=settings.base_url,
        allowed_origins=settings.allowed_origins,
        allowed_hosts=settings.allowed_hosts,
        request_bytes_max=settings.request_bytes_max,
        failing_workers=supervisor.failing,
        failing_endpoints=mcp.failing,
        public_keys=[key.jwk for key in load_signing_keys(settings)],
    )
