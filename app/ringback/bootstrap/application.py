"""A whole service, opened and closed."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI

from ringback.api.app import Services, create_app
from ringback.bootstrap.doors import api_config, authenticator_for, mcp_server
from ringback.bootstrap.keys import key_ring_of
from ringback.bootstrap.parts import new_sealer, open_parts
from ringback.bootstrap.policies import retention_of
from ringback.bootstrap.services import all_services
from ringback.bootstrap.workers import dispatcher, runner, verifier, watchman
from ringback.bootstrap.world import ReadConfigs, World
from ringback.domain.ids import Ids
from ringback.domain.ports import Store
from ringback.janitor import Janitor, JanitorConfig
from ringback.mcp_server.endpoints import McpServer
from ringback.notifier.catch_up_worker import CatchUpWorker
from ringback.resealing import Resealer
from ringback.runner.upstreams import UpstreamConfig
from ringback.services.keys import Keys
from ringback.services.lifecycle import Lifecycle
from ringback.settings import Settings
from ringback.storage.open import open_store
from ringback.supervisor import Supervisor, Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A service that is ready to run: the HTTP application, and the work behind it."""

    api: FastAPI
    services: Services
    store: Store
    supervisor: Supervisor
    lifecycle: Lifecycle
    mcp: McpServer

    async def run(self, stop: asyncio.Event) -> None:
        """Work until `stop` is set: then nothing new is taken, what runs is drained, and what is left is written down."""

        async def close_when_stopped() -> None:
            await stop.wait()
            self.lifecycle.stop()

        async with asyncio.TaskGroup() as group:
            group.create_task(close_when_stopped())
            await self.supervisor.run(stop)
        self.mcp.close()


@asynccontextmanager
async def application(
    settings: Settings,
    upstream_configs: Sequence[UpstreamConfig],
    *,
    reread: ReadConfigs | None = None,
    world: World | None = None,
) -> AsyncGenerator[Application]:
    """A whole service over its own store; everything it opened is closed at the end.

    `reread` is asked when the upstreams are to be configured anew; without it they stay as they are.
    Raises storage's error when another process serves the same SQLite file.
    """
    retention = retention_of(settings)
    async with open_parts(settings, upstream_configs, reread, world or World(), retention) as parts:
        janitor = Janitor(
            store=parts.store,
            recorder=parts.recorder,
            clock=parts.world.clock,
            config=JanitorConfig(retention=retention, only_owner=parts.owner if parts.store.exclusive else None),
        )
        workers: list[Worker] = [
            runner(parts, settings),
            watchman(parts),
            verifier(parts, settings),
            CatchUpWorker(store=parts.store, catch_ups=parts.recorder.catch_ups, clock=parts.world.clock),
            dispatcher(parts, settings),
            janitor,
        ]
        if parts.keys > 1:
            workers.append(Resealer(store=parts.store, sleep=parts.world.clock.sleep))
        supervisor = Supervisor(workers, clock=parts.world.clock)
        services = all_services(parts, settings)
        async with (
            authenticator_for(parts, services, settings) as authenticator,
            mcp_server(parts, services, settings, authenticator) as mcp,
        ):
            yield Application(
                api=create_app(services, config=api_config(settings, supervisor, authenticator, mcp), mcp=mcp),
                services=services,
                store=parts.store,
                supervisor=supervisor,
                lifecycle=services.lifecycle,
                mcp=mcp,
            )


@asynccontextmanager
async def open_keys(settings: Settings) -> AsyncGenerator[Keys]:
    """The API keys of a service's database, also while the service runs."""
    world = World()
    async with open_beside(settings) as store:
        yield Keys(store=store, ids=Ids(world.clock, random_bytes=world.random_bytes))


@asynccontextmanager
async def open_beside(settings: Settings) -> AsyncGenerator[Store]:
    """A service's store, also while the service runs: for tools that look, or write a row."""
    world = World()
    sealer = new_sealer(await key_ring_of(settings, world), world)
    async with open_store(settings.database_url, clock=world.clock, sealer=sealer, exclusive=False) as store:
        yield store
