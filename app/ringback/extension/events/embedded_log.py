"""A Ringback inside the server's own process, as the log of its events."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from ringback.bootstrap import Application, Environment, open_application
from ringback.bootstrap.configuration import build_target_policy
from ringback.domain.clock import Clock
from ringback.extension.embedded_backend import DEV_SETTINGS
from ringback.extension.events.event_log import EmittedEvent
from ringback.extension.events.event_types import DeclaredEventType, DeclaredEventTypes
from ringback.extension.events.log_backend import LogBackend
from ringback.extension.events.principals import EventCaller
from ringback.extension.events.shared_log import Audience, SharedLogStore
from ringback.extension.events.subscription_index import SubscriptionIndex
from ringback.notifier.http.guard import find_target_error
from ringback.protocol.mcp_events.descriptors import EventDescriptor
from ringback.protocol.mcp_events.endpoint import EndpointPolicy, EventEndpoint
from ringback.services.events.event_streams import EventStreams
from ringback.services.events.log_tails import LogTails
from ringback.services.limits.quotas import QuotaEnforcer, Quotas
from ringback.services.webhooks.subscription_ends import terminate_of_event
from ringback.settings import Settings, load_settings

STREAMS_MAX: Final = 10_000
"""Streams of all principals together: what one process is designed to hold."""
NAMES_AT_ONCE: Final = 100
"""Event types of one read, when subscriptions to removed types end."""
_LOG_SETTINGS: Final[Mapping[str, Any]] = {
    "quota_starts_per_minute": 600_000,
    "quota_event_bytes": 2**53,
    "quota_delivery_bytes": 2**53,
}
"""The server publishes all events as one principal: 10,000 a second, more than an SQLite file takes. The disk is its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenLog:
    """Implements `event_log.OpenEvents`."""

    endpoint: EventEndpoint[EventCaller]
    backend: LogBackend

    async def record_event(self, event: EmittedEvent) -> str:
        return await self.backend.record_event(event)


class EmbeddedLog:
    """Implements `event_log.EventLog`. `path` is the SQLite file; None for a temporary one, which ends with the process."""

    def __init__(self, path: Path | None, *, dev: bool, settings: Mapping[str, Any]) -> None:
        self._path = path
        self._dev = dev
        self._settings = {**_LOG_SETTINGS, **(DEV_SETTINGS if dev else {"auth": "keys"}), **settings}

    @asynccontextmanager
    async def open(self, types: DeclaredEventTypes) -> AsyncGenerator[OpenLog]:
        audience = Audience(types, SubscriptionIndex(types))
        environment = Environment(
            announces_api=False,
            wrap_store=lambda store: SharedLogStore(store, audience),
            select_webhooks=audience.select_webhooks,
        )
        with self._database() as database_url:
            settings = load_settings(**self._settings, database_url=database_url)
            async with open_application(settings, (), environment=environment) as app:
                backend = _build_backend(app, types, audience, clock=environment.clock, dev=self._dev)
                stop = asyncio.Event()
                await _end_removed_types(app, types)
                worker = asyncio.create_task(app.run(stop))
                try:
                    yield OpenLog(endpoint=_build_endpoint(backend, types, settings), backend=backend)
                finally:
                    stop.set()
                    await worker

    @contextmanager
    def _database(self) -> Generator[str]:
        if self._path is not None:
            yield f"sqlite:///{self._path}"
            return
        with tempfile.TemporaryDirectory(prefix="ringback-events-") as folder:
            yield f"sqlite:///{Path(folder) / 'events.db'}"


def _build_backend(
    app: Application, types: DeclaredEventTypes, audience: Audience, *, clock: Clock, dev: bool
) -> LogBackend:
    return LogBackend(
        publishing=app.services.event_publishing,
        polls=app.services.event_polls,
        streams=EventStreams(
            store=app.store,
            clock=clock,
            quotas=QuotaEnforcer(Quotas(streams=STREAMS_MAX), clock=clock),
            lifecycle=app.services.lifecycle,
            tails=LogTails(app.store),
        ),
        subscriptions=app.services.event_subscriptions,
        types=types,
        audience=audience,
        clock=clock,
        dev=dev,
    )


async def _end_removed_types(app: Application, types: DeclaredEventTypes) -> None:
    """Subscriptions to types that this version of the server does not declare get a `terminated` envelope."""
    after, names = "", [""]
    while names:
        names = await app.store.read(
            lambda tx, after=after: tx.subscriptions.list_event_names(after=after, limit=NAMES_AT_ONCE)
        )
        for after in names:
            while types.get(after) is None and not await app.store.write(
                lambda tx, name=after: terminate_of_event(tx, app.recorder, name)
            ):
                pass


def _build_endpoint(backend: LogBackend, types: DeclaredEventTypes, settings: Settings) -> EventEndpoint[EventCaller]:
    def find_argument_error(descriptor: EventDescriptor, arguments: Mapping[str, Any]) -> str | None:
        declared: DeclaredEventType | None = types.get(descriptor.name)
        return None if declared is None else declared.find_argument_error(arguments)

    return EventEndpoint(
        backend,
        EndpointPolicy(
            get_principal=backend.find_principal,
            find_argument_error=find_argument_error,
            find_url_error=partial(find_target_error, build_target_policy(settings)),
            wait_seconds_max=settings.wait_seconds_max,
        ),
    )
