"""Opens and closes a whole service."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI

from ringback.api.app import Services, create_app
from ringback.bootstrap.components import build_sealer, open_components
from ringback.bootstrap.configuration import build_retention
from ringback.bootstrap.entrypoints import build_api_config, open_authenticator, open_mcp_server
from ringback.bootstrap.environment import Environment, ReadConfigs
from ringback.bootstrap.key_ring import load_service_key_ring
from ringback.bootstrap.services import build_services
from ringback.bootstrap.workers import build_change_recorder, build_dispatcher, build_runner, build_verifier
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store
from ringback.janitor import Janitor, JanitorConfig
from ringback.mcp_server.server import McpServer
from ringback.notifier.catch_up import CatchUpWorker
from ringback.resealing import Resealer
from ringback.services.api_keys import ApiKeys
from ringback.services.lifecycle import Lifecycle
from ringback.settings import Settings
from ringback.storage.open import open_store
from ringback.supervisor import Supervisor, Worker
from ringback.upstreams.registry import UpstreamConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A service that is ready to run: the HTTP application and its workers."""

    api: FastAPI
    services: Services
    store: Store
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
    upstream_configs: Sequence[UpstreamConfig],
    *,
    read_configs: ReadConfigs | None = None,
    environment: Environment | None = None,
) -> AsyncGenerator[Application]:
    """A whole service over its own store, closed at the end of the context.

    `read_configs` supplies the upstreams' configuration for a reload; without it a reload changes nothing.
    Raises `StoreUnavailable` when another process serves the same SQLite file.
    """
    retention = build_retention(settings)
    async with open_components(
        settings, upstream_configs, read_configs, environment or Environment(), retention
    ) as components:
        janitor = Janitor(
            store=components.store,
            recorder=components.recorder,
            clock=components.environment.clock,
            config=JanitorConfig(
                retention=retention, exclusive_owner=components.owner if components.store.is_exclusive else None
            ),
        )
        workers: list[Worker] = [
            build_runner(components, settings),
            build_change_recorder(components),
            build_verifier(components, settings),
            CatchUpWorker(
                store=components.store, catch_ups=components.recorder.catch_ups, clock=components.environment.clock
            ),
            build_dispatcher(components, settings),
            janitor,
        ]
        if components.key_count > 1:
            workers.append(Resealer(store=components.store, sleep=components.environment.clock.sleep))
        supervisor = Supervisor(workers, clock=components.environment.clock)
        services = build_services(components, settings)
        async with (
            open_authenticator(components, services, settings) as authenticator,
            open_mcp_server(components, services, settings, authenticator) as mcp,
        ):
            yield Application(
                api=create_app(services, config=build_api_config(settings, supervisor, authenticator, mcp), mcp=mcp),
                services=services,
                store=components.store,
                supervisor=supervisor,
                lifecycle=services.lifecycle,
                mcp=mcp,
            )


@asynccontextmanager
async def open_api_keys(settings: Settings) -> AsyncGenerator[ApiKeys]:
    """The API keys of a service's database. The service may run meanwhile."""
    environment = Environment()
    async with open_shared_store(settings) as store:
        yield ApiKeys(store=store, ids=IdGenerator(environment.clock, random_bytes=environment.random_bytes))


@asynccontextmanager
async def open_shared_store(settings: Settings) -> AsyncGenerator[Store]:
    """A service's store, for commands that read it or write a row. The service may run meanwhile."""
    environment = Environment()
    sealer = build_sealer(await load_service_key_ring(settings, environment), environment)
    async with open_store(settings.database_url, clock=environment.clock, sealer=sealer, exclusive=False) as store:
        yield store
