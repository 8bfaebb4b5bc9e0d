"""The composition root: makes every part and hands each what it needs. Nothing else knows how the parts are made.

settings ──▶ key ring ──▶ store ──▶ recorder ──▶ services ──▶ api
                            │          │
                        upstreams ──▶ runner ─┐
                         sender ──▶ dispatcher ├──▶ supervisor
                                     janitor ─┘
"""

import asyncio
import os
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import httpx
from fastapi import FastAPI

from ringback.api.app import ApiConfig, Services, create_app
from ringback.domain.clock import Clock, SystemClock
from ringback.domain.errors import InvalidCallbackUrl
from ringback.domain.ids import Ids
from ringback.domain.ports import Sealer, Store
from ringback.domain.principal import DEFAULT_SCOPES, Authenticator
from ringback.domain.protected_resource import ProtectedResource
from ringback.domain.upstreams import Configured
from ringback.identity.access_tokens import AccessTokens, TokenRules
from ringback.identity.bearers import Bearers, Everybody
from ringback.identity.documents import client as issuer_client
from ringback.identity.issuer import Issuer
from ringback.janitor import Janitor, JanitorConfig, Retention
from ringback.keyring import load_key_ring, load_signing_keys, token_keys
from ringback.mcp_server.endpoints import McpServer, Workers
from ringback.mcp_server.gateway import Gateway, GatewayConfig
from ringback.notifier.aiohttp_sender import AiohttpSender
from ringback.notifier.body import Bodies
from ringback.notifier.dispatcher import Dispatcher
from ringback.notifier.httpx_sender import HttpxSender
from ringback.notifier.on_demand import OnDemand
from ringback.notifier.record import Recorder
from ringback.notifier.resume_tokens import CallTokens
from ringback.notifier.target_guard import TargetGuard, TargetPolicy
from ringback.notifier.verifier import Verifier
from ringback.resealing import Resealer
from ringback.runner.changes import ChangeStream
from ringback.runner.reloading import Reloading
from ringback.runner.runner import Runner, RunnerConfig
from ringback.runner.upstreams import UpstreamConfig, Upstreams
from ringback.runner.watchman import Watchman
from ringback.services.adoption import Adoption
from ringback.services.answers import Answers
from ringback.services.calls import Calls
from ringback.services.deliveries import Deliveries
from ringback.services.events import Events
from ringback.services.insights import Insights
from ringback.services.joined_names import JoinedNames
from ringback.services.keys import Keys
from ringback.services.lifecycle import Lifecycle
from ringback.services.quotas import QuotaKeeper, Quotas
from ringback.services.replays import Replays
from ringback.services.reports import Reports
from ringback.services.resume import Resume
from ringback.services.upkeep import Upkeep
from ringback.services.verification import Verification, VerificationPolicy
from ringback.services.webhooks import Webhooks
from ringback.settings import Settings, SettingsError
from ringback.signing.resume_token import ResumeTokens
from ringback.signing.sealing import AesGcmSealer, KeyRing
from ringback.storage.open import open_store
from ringback.supervisor import Supervisor, Worker

AUDIENCE: Final = "ringback"
"""Of resume tokens. Not the public URL: a service that moves must still read the tokens that it gave out."""

ReadConfigs = Callable[[], Sequence[UpstreamConfig]]
"""Reads the configuration of the upstreams; raises `ConfigError`."""


def _same(store: Store) -> Store:
    return store


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a whole service takes from outside, so that a test, a simulation or an embedder can bring its own."""

    clock: Clock = field(default_factory=SystemClock)
    chance: Callable[[], float] = random.SystemRandom().random
    """Uniform in [0, 1), for jitter."""
    random_bytes: Callable[[int], bytes] = os.urandom
    egress: httpx.AsyncBaseTransport | None = None
    """Callbacks go out through it instead of our own guarded sender."""
    store: Callable[[Store], Store] = _same
    """Put around the store, to watch it or to fail at a chosen moment."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """What services and workers share."""

    world: World
    store: Store
    upstreams: Upstreams
    changes: ChangeStream
    """What they tell unasked, from before they were opened."""
    configured: Configured
    ids: Ids
    tokens: CallTokens
    recorder: Recorder
    guard: TargetGuard
    sender: AiohttpSender | HttpxSender
    quotas: QuotaKeeper
    sealer: Sealer
    keys: int
    """In the key ring."""


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
    retention = _retention(settings)
    async with _open_parts(settings, upstream_configs, reread, world or World(), retention) as parts:
        janitor = Janitor(
            store=parts.store,
            recorder=parts.recorder,
            sleep=parts.world.clock.sleep,
            config=JanitorConfig(retention=retention),
        )
        await janitor.recover()
        workers: list[Worker] = [
            _runner(parts, settings),
            _watchman(parts),
            _verifier(parts, settings),
            _dispatcher(parts, settings),
            janitor,
        ]
        if parts.keys > 1:
            workers.append(Resealer(store=parts.store, sleep=parts.world.clock.sleep))
        supervisor = Supervisor(workers, clock=parts.world.clock)
        services = _services(parts, settings)
        async with (
            _authenticator(parts, services, settings) as authenticator,
            _mcp_server(parts, services, settings, authenticator) as mcp,
        ):
            yield Application(
                api=create_app(services, config=_api_config(settings, supervisor, authenticator), mcp=mcp),
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
    sealer = _sealer(load_key_ring(settings, random_bytes=world.random_bytes), world)
    async with open_store(settings.database_url, clock=world.clock, sealer=sealer, exclusive=False) as store:
        yield store


@asynccontextmanager
async def _open_parts(
    settings: Settings,
    upstream_configs: Sequence[UpstreamConfig],
    reread: ReadConfigs | None,
    world: World,
    retention: Retention,
) -> AsyncGenerator[_Parts]:
    ring = load_key_ring(settings, random_bytes=world.random_bytes)
    sealer = _sealer(ring, world)
    ids = Ids(world.clock, random_bytes=world.random_bytes)
    tokens = CallTokens(
        ResumeTokens(token_keys(ring), audience=AUDIENCE), result_retention_seconds=retention.result_seconds
    )
    bodies = Bodies(tokens=tokens, public_url=settings.base_url)
    guard = TargetGuard(_target_policy(settings))
    sender = HttpxSender(world.egress, clock=world.clock) if world.egress else AiohttpSender(guard, clock=world.clock)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(sender.aclose)
        store = await stack.enter_async_context(
            open_store(settings.database_url, clock=world.clock, sealer=sealer, exclusive=True)
        )
        store = world.store(store)
        upstreams = Upstreams(
            upstream_configs,
            clock=world.clock,
            chance=world.chance,
            connect_patience_seconds=settings.connect_patience_seconds,
            store=store,
        )
        yield _Parts(
            world=world,
            store=store,
            changes=stack.enter_context(upstreams.changes.listen()),
            upstreams=await stack.enter_async_context(upstreams),
            configured=Reloading(upstreams, read=reread or (lambda: upstream_configs)),
            ids=ids,
            tokens=tokens,
            recorder=Recorder(ids=ids, bodies=bodies, result_retention_seconds=retention.result_seconds),
            guard=guard,
            sender=sender,
            quotas=QuotaKeeper(_quotas(settings), clock=world.clock),
            sealer=sealer,
            keys=len(ring.keys),
        )


def _sealer(ring: KeyRing, world: World) -> AesGcmSealer:
    return AesGcmSealer(ring.keys, current=ring.current, random=world.random_bytes)


def _runner(parts: _Parts, settings: Settings) -> Runner:
    return Runner(
        store=parts.store,
        clock=parts.world.clock,
        ids=parts.ids,
        recorder=parts.recorder,
        sessions=parts.upstreams,
        live=parts.upstreams.live,
        config=RunnerConfig(owner=parts.ids.lease(), drain_seconds=settings.drain_seconds),
    )


def _watchman(parts: _Parts) -> Watchman:
    return Watchman(
        store=parts.store,
        clock=parts.world.clock,
        recorder=parts.recorder,
        passage=parts.upstreams.passage,
        changes=parts.changes,
    )


def _dispatcher(parts: _Parts, settings: Settings) -> Dispatcher:
    return Dispatcher(
        store=parts.store,
        clock=parts.world.clock,
        ids=parts.ids,
        sender=parts.sender,
        recorder=parts.recorder,
        policy=_target_policy(settings),
        chance=parts.world.chance,
        signing_keys=load_signing_keys(settings),
    )


def _verifier(parts: _Parts, settings: Settings) -> Verifier:
    return Verifier(
        store=parts.store,
        clock=parts.world.clock,
        ids=parts.ids,
        asker=parts.sender,
        policy=_target_policy(settings),
        chance=parts.world.chance,
        signing_keys=load_signing_keys(settings),
    )


def _verification(parts: _Parts, settings: Settings, lifecycle: Lifecycle) -> Verification:
    try:
        return Verification(
            store=parts.store,
            clock=parts.world.clock,
            lifecycle=lifecycle,
            targets=_target_policy(settings),
            policy=VerificationPolicy(mode=settings.verify_callbacks, allowlist=settings.callback_allowlist),
        )
    except InvalidCallbackUrl as problem:
        raise SettingsError(f"RINGBACK_CALLBACK_ALLOWLIST: {problem}") from None


def _services(parts: _Parts, settings: Settings) -> Services:
    store, clock, lifecycle = parts.store, parts.world.clock, Lifecycle()
    quotas, on_demand = parts.quotas, OnDemand(ids=parts.ids)
    webhooks = Webhooks(
        store=store,
        clock=clock,
        ids=parts.ids,
        recorder=parts.recorder,
        on_demand=on_demand,
        guard=parts.guard,
        quotas=quotas,
        lifecycle=lifecycle,
        verification=_verification(parts, settings, lifecycle),
        catalog=parts.upstreams.catalog,
    )
    calls = Calls(
        store=store,
        clock=clock,
        ids=parts.ids,
        catalog=parts.upstreams.catalog,
        recorder=parts.recorder,
        tokens=parts.tokens,
        webhooks=webhooks,
        quotas=quotas,
        lifecycle=lifecycle,
    )
    return Services(
        calls=calls,
        answers=Answers(store, parts.recorder),
        adoption=Adoption(
            store=store,
            ids=parts.ids,
            tasks=parts.upstreams.tasks,
            tokens=parts.tokens,
            webhooks=webhooks,
            quotas=quotas,
            lifecycle=lifecycle,
        ),
        reports=Reports(
            store=store,
            ids=parts.ids,
            recorder=parts.recorder,
            tokens=parts.tokens,
            webhooks=webhooks,
            quotas=quotas,
            lifecycle=lifecycle,
        ),
        webhooks=webhooks,
        events=Events(store=store, clock=clock, quotas=quotas, lifecycle=lifecycle),
        deliveries=Deliveries(store=store),
        replays=Replays(store=store, on_demand=on_demand, quotas=quotas, lifecycle=lifecycle),
        resume=Resume(store=store, clock=clock, tokens=parts.tokens, lifecycle=lifecycle),
        keys=Keys(store=store, ids=parts.ids),
        insights=Insights(store=store, catalog=parts.upstreams.catalog, quotas=quotas, lifecycle=lifecycle),
        upkeep=Upkeep(store=store, configured=parts.configured),
        lifecycle=lifecycle,
    )


@asynccontextmanager
async def _authenticator(parts: _Parts, services: Services, settings: Settings) -> AsyncGenerator[Authenticator]:
    if settings.auth == "off":
        yield Everybody()
        return
    if settings.oidc_issuer is None:
        yield Bearers(keys=services.keys)
        return
    async with issuer_client() as http:
        clock = parts.world.clock
        issuer = Issuer(settings.oidc_issuer, http=http, clock=clock)
        tokens = AccessTokens(issuer=issuer, rules=_token_rules(settings), clock=clock)
        yield Bearers(keys=services.keys, tokens=tokens)


@asynccontextmanager
async def _mcp_server(
    parts: _Parts, services: Services, settings: Settings, authenticator: Authenticator
) -> AsyncGenerator[McpServer]:
    workers = Workers()
    gateway = Gateway(
        config=_gateway_config(settings),
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


def _gateway_config(settings: Settings) -> GatewayConfig:
    return GatewayConfig(
        public_url=settings.base_url,
        inline_wait_seconds=settings.inline_wait_seconds,
        task_grace_seconds=settings.task_grace_seconds,
        keep_on_disconnect=settings.disconnect == "keep",
        request_bytes_max=settings.request_bytes_max,
        callers_identified=settings.auth != "off",
        result_retention_seconds=settings.result_retention_seconds,
    )


def _retention(settings: Settings) -> Retention:
    try:
        return Retention(
            result_seconds=settings.result_retention_seconds,
            event_seconds=settings.event_retention_seconds,
            tombstone_seconds=settings.tombstone_retention_seconds,
        )
    except ValueError as problem:
        raise SettingsError(f"RINGBACK_RESULT|EVENT|TOMBSTONE_RETENTION_SECONDS: {problem}") from None


def _quotas(settings: Settings) -> Quotas:
    return Quotas(
        open_calls=settings.quota_open_calls,
        result_bytes=settings.quota_result_bytes,
        webhooks=settings.quota_webhooks,
        streams=settings.quota_streams,
        starts_per_minute=settings.quota_starts_per_minute,
    )


def _target_policy(settings: Settings) -> TargetPolicy:
    return TargetPolicy(private_cidrs=settings.callback_private_cidrs, http_allowed_for_private=settings.callback_http)


def _token_rules(settings: Settings) -> TokenRules:
    return TokenRules(
        public_url=settings.base_url,
        audiences=frozenset(settings.oidc_audience),
        principal_claim=settings.oidc_principal_claim,
        granted=frozenset(settings.oidc_scopes),
    )


def _protected_resource(settings: Settings) -> ProtectedResource | None:
    if settings.auth == "off" or settings.oidc_issuer is None:
        return None
    # An issuer that cannot give out our scopes refuses a client that asks for them.
    scopes = () if settings.oidc_scopes else sorted(DEFAULT_SCOPES)
    return ProtectedResource(public_url=settings.base_url, issuer=settings.oidc_issuer, scopes=scopes)


def _api_config(settings: Settings, supervisor: Supervisor, authenticator: Authenticator) -> ApiConfig:
    return ApiConfig(
        authenticator=authenticator,
        oauth=_protected_resource(settings),
        public_url=settings.base_url,
        allowed_origins=settings.allowed_origins,
        allowed_hosts=settings.allowed_hosts,
        request_bytes_max=settings.request_bytes_max,
        failing_workers=supervisor.failing,
        public_keys=[key.jwk for key in load_signing_keys(settings)],
    )
