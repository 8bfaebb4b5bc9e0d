"""Opens and closes a whole service."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI

from ringback.api.app import create_app, create_operations_app
from ringback.api.context import ApiConfig
from ringback.bootstrap.components import Components, open_components
from ringback.bootstrap.configuration import names_itself_in_callbacks, require_callback_url, require_complete_roles
from ringback.bootstrap.entrypoints import (
    build_api_config,
    build_login_pages,
    build_ui_routes,
    open_authenticator,
    open_issuer_sign_in,
    open_mcp_server,
)
from ringback.bootstrap.environment import Environment, ReadConfigs
from ringback.bootstrap.policies import build_retention, build_services_config
from ringback.bootstrap.services import build_services
from ringback.bootstrap.workers import build_workers
from ringback.domain.errors import InvalidCallbackUrl, StoreUnavailable
from ringback.domain.ports import Store
from ringback.domain.roles import Role
from ringback.identity.issuer_sign_in import IssuerSignIn
from ringback.janitor.recovery import hand_back_leases
from ringback.mcp_server.server import McpServer
from ringback.notifier.recorder import Recorder
from ringback.services.lifecycle import Lifecycle
from ringback.services.services import Services
from ringback.settings import Settings, SettingsError
from ringback.supervisor import Supervisor
from ringback.upstreams.config import UpstreamEntry

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A service that is ready to run: the HTTP application and its workers."""

    api: FastAPI
    services: Services
    store: Store
    recorder: Recorder
    supervisor: Supervisor
    lifecycle: Lifecycle
    mcp: McpServer

    async def run(self, stop: asyncio.Event) -> None:
        """Run the workers until `stop` is set. Then they start nothing new, drain what runs, and record the rest."""

        async def close_when_stopped() -> None:
            await stop.wait()
            self.lifecycle.begin_shutdown()

        async with asyncio.TaskGroup() as group:
            group.create_task(close_when_stopped())
            await self.supervisor.run(stop)
        self.mcp.close()


@asynccontextmanager
async def open_application(
    settings: Settings,
    upstream_configs: Sequence[UpstreamEntry],
    *,
    read_configs: ReadConfigs | None = None,
    environment: Environment | None = None,
) -> AsyncGenerator[Application]:
    """A whole service over its own store, closed at the end of the context.

    `read_configs` supplies the upstreams' configuration for a reload; without it a reload changes nothing.
    Raises `StoreUnavailable` when another process serves the same SQLite file. A node without the role `api` serves only
    health, readiness and metrics.
    """
    _check_settings(settings)
    retention = build_retention(settings)
    async with open_components(
        settings, upstream_configs, read_configs, environment or Environment(), retention
    ) as components:
        workers = build_workers(components, settings, retention)
        clock = components.clock
        supervisor = Supervisor([each for of_role in workers.values() for each in of_role], clock=clock)
        services = _build_services(components, settings)
        await _resume_waiting_calls(services)
        async with (
            _handing_back_leases(components),
            open_authenticator(components, services, settings) as authenticator,
            open_mcp_server(components, services, settings, authenticator) as mcp,
            open_issuer_sign_in(components, settings) as issuer_sign_in,
        ):
            config = build_api_config(settings, supervisor, workers, authenticator, mcp, clock)
            yield Application(
                api=_build_api(components, services, settings, config, mcp, issuer_sign_in),
                services=services,
                store=components.store,
                recorder=components.recorder,
                supervisor=supervisor,
                lifecycle=services.lifecycle,
                mcp=mcp,
            )


def _check_settings(settings: Settings) -> None:
    require_complete_roles(settings)
    require_callback_url(settings)
    if names_itself_in_callbacks(settings):
        log.warning("service.public_url_missing", extra={"callbacks_name": settings.base_url})


def _build_services(components: Components, settings: Settings) -> Services:
    try:
        return build_services(components, build_services_config(settings))
    except InvalidCallbackUrl as problem:
        raise SettingsError(f"RINGBACK_CALLBACK_ALLOWLIST: {problem}") from None


def _build_api(
    components: Components,
    services: Services,
    settings: Settings,
    config: ApiConfig,
    mcp: McpServer,
    issuer_sign_in: IssuerSignIn | None,
) -> FastAPI:
    create_api = create_app if Role.API in settings.roles else create_operations_app
    return create_api(
        services,
        config=config,
        mcp=mcp,
        login_pages=build_login_pages(components, settings),
        ui_routes=build_ui_routes(components, services, settings, config, issuer_sign_in),
        tracer=components.environment.tracer,
    )


async def _resume_waiting_calls(services: Services) -> None:
    """The configuration may have changed since the last process. Without the store, the next reload or start does it."""
    try:
        await services.upstream_reloads.resume_waiting_calls()
    except StoreUnavailable:
        log.warning("calls.not_resumed")


@asynccontextmanager
async def _handing_back_leases(components: Components) -> AsyncGenerator[None]:
    """At the end, release what this node still has leased. On a store of one process, the next start does it."""
    try:
        yield
    finally:
        if not components.store.is_exclusive:
            await hand_back_leases(components.store, components.recorder, owner=components.owner)
