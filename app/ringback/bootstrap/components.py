"""The objects that services and workers share: the store, the upstreams, the recorder, the sender."""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Final

from ringback.admission import AdmissionGate
from ringback.attended_calls import AttendedCalls
from ringback.bootstrap.children_folder import claim_children_folder
from ringback.bootstrap.configuration import build_client_metadata_url, build_target_policy, load_authorities
from ringback.bootstrap.egress import open_egress
from ringback.bootstrap.environment import Environment, ReadConfigs
from ringback.bootstrap.measured_store import MeasuredStore
from ringback.bootstrap.policies import build_quotas
from ringback.bootstrap.quota_configuration import ConfigurationReloader, load_quota_overrides
from ringback.bootstrap.service_parts import ServiceParts
from ringback.domain.clock import CONTINUED_AHEAD_SECONDS_MAX, Clock, format_iso
from ringback.domain.clock_confirmation import CONFIRMATION_SECONDS
from ringback.domain.encryption import Sealer
from ringback.domain.ids import IdGenerator
from ringback.domain.ports import Store
from ringback.domain.roles import UPSTREAM_ROLES
from ringback.domain.upstream_logins import LoginFlow
from ringback.janitor.config import Retention
from ringback.keyring import derive_instance_id, derive_token_keys
from ringback.measurements import Measurements
from ringback.notifier.catch_up import CatchUps
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.notifier.fan_out import FanOut
from ringback.notifier.http.authorities import TrustedAuthorities
from ringback.notifier.http.client import Http1Sender
from ringback.notifier.http.dialer import make_tls_context
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.httpx_sender import HttpxSender
from ringback.notifier.payload import PayloadBuilder
from ringback.notifier.recorder import Recorder
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.post_commit import CallHandoff, DeliveryHandoff
from ringback.runner.drivers.selection import predict_driver_name
from ringback.runner.task_lookup import UpstreamTaskLookup
from ringback.service_database.key_ring import build_sealer, load_service_key_ring, require_key_ring
from ringback.services.calls.resume_recorder import CallResumeRecorder
from ringback.services.limits.quotas import QuotaEnforcer
from ringback.services.logins.login_waits import LoginWaits
from ringback.settings import Settings
from ringback.signing.resume_token import ResumeTokenCodec
from ringback.signing.sealing import KeyRing
from ringback.storage.open import open_store
from ringback.upstreams.config import UpstreamEntry
from ringback.upstreams.oauth.authorization import OAuthLoginFlow
from ringback.upstreams.oauth.client_store import StoredClients
from ringback.upstreams.oauth.metadata_http import MetadataClients
from ringback.upstreams.oauth.source_factory import TokenSourceFactory
from ringback.upstreams.own_address import OwnAddress
from ringback.upstreams.registry import UpstreamRegistry, UpstreamReloader
from ringback.upstreams.subscriptions.change_notifications import ChangeStream

log = logging.getLogger(__name__)

RESUME_TOKEN_AUDIENCE: Final = "ringback"  # noqa: S105 - a name, not a secret
"""Not the public URL: a service whose URL changes must still accept its earlier tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Components(ServiceParts):
    """The objects that services and workers share, and what only workers and entry points use."""

    environment: Environment
    authorities: TrustedAuthorities
    upstreams: UpstreamRegistry
    change_stream: ChangeStream
    """Change notifications of the upstreams. It subscribes before they are opened, so that none is missed."""
    owner: str
    """Identifies this process in leases."""
    delivery_handoff: DeliveryHandoff
    """Passes new deliveries to the dispatcher of this process right after the commit."""
    sender: Http1Sender | HttpxSender
    sealer: Sealer
    key_count: int
    """Keys in the key ring. With more than one, `Resealer` runs."""


@asynccontextmanager
async def open_components(
    settings: Settings,
    upstream_configs: Sequence[UpstreamEntry],
    read_configs: ReadConfigs | None,
    environment: Environment,
    retention: Retention,
) -> AsyncGenerator[Components]:
    authorities = load_authorities(settings)
    ring = await load_service_key_ring(settings, clock=environment.clock, random_bytes=environment.random_bytes)
    sealer = build_sealer(ring, settings, random_bytes=environment.random_bytes)
    ids = IdGenerator(environment.clock, random_bytes=environment.random_bytes)
    tokens = _build_resume_tokens(ring, retention)
    measurements, attended_calls, delivery_handoff = Measurements(), AttendedCalls(), DeliveryHandoff()
    fan_out = _build_fan_out(settings, environment, ids, tokens, delivery_handoff)
    quotas = build_quota_enforcer(settings, environment)
    recorder = Recorder(
        ids=ids,
        fan_out=fan_out,
        attended_calls=attended_calls,
        measurements=measurements,
        result_retention_seconds=retention.result_seconds,
        progress_quota=quotas,
    )
    guard = TargetGuard(build_target_policy(settings), resolver=environment.resolver)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(guard.aclose)
        sender = await stack.enter_async_context(_open_sender(settings, environment, guard, authorities))
        store = await stack.enter_async_context(_open_measured_store(settings, environment, ring, sealer, measurements))
        if UPSTREAM_ROLES.isdisjoint(settings.roles):
            upstream_configs, read_configs = (), None
        folder = stack.enter_context(claim_children_folder(settings.database_url))
        upstreams, metadata_clients = _build_upstreams(
            settings, environment, upstream_configs, store, folder, authorities, own_id=derive_instance_id(ring)
        )
        measurements.is_configured = upstreams.tool_catalog.has_upstream
        yield Components(
            environment=environment,
            clock=environment.clock,
            authorities=authorities,
            store=store,
            change_stream=stack.enter_context(upstreams.change_notifications.subscribe_changes(principal=None)),
            upstreams=await stack.enter_async_context(upstreams),
            login_flow=_build_login_flow(settings, environment, upstreams, metadata_clients, store),
            configuration=_build_reloader(settings, upstreams, read_configs or (lambda: upstream_configs), quotas),
            ids=ids,
            owner=ids.new_lease_token(),
            resume_tokens=tokens,
            recorder=recorder,
            catch_ups=CatchUps(fan_out),
            delivery_handoff=delivery_handoff,
            attended_calls=attended_calls,
            measurements=measurements,
            call_resumes=CallResumeRecorder(store=store, clock=environment.clock),
            login_waits=LoginWaits(recorder=recorder, public_url=settings.base_url),
            call_handoff=CallHandoff(),
            admission=AdmissionGate(),
            target_guard=guard,
            sender=sender,
            requester=sender,
            tool_catalog=upstreams.tool_catalog,
            event_catalog=upstreams.event_catalog,
            task_lookup=UpstreamTaskLookup(upstreams.connections),
            upstream_connections=upstreams,
            quotas=quotas,
            sealer=sealer,
            key_count=len(ring.keys),
        )


def _build_resume_tokens(ring: KeyRing, retention: Retention) -> CallResumeTokens:
    codec = ResumeTokenCodec(derive_token_keys(ring), audience=RESUME_TOKEN_AUDIENCE)
    return CallResumeTokens(codec, result_retention_seconds=retention.result_seconds)


def _build_fan_out(
    settings: Settings,
    environment: Environment,
    ids: IdGenerator,
    tokens: CallResumeTokens,
    delivery_handoff: DeliveryHandoff,
) -> FanOut:
    public_url = settings.base_url if environment.announces_api else None
    return FanOut(
        ids=ids,
        payloads=PayloadBuilder(tokens=tokens, public_url=public_url),
        delivery_handoff=delivery_handoff,
        select_webhooks=environment.select_webhooks,
    )


def _build_reloader(
    settings: Settings, upstreams: UpstreamRegistry, read_configs: ReadConfigs, quotas: QuotaEnforcer
) -> ConfigurationReloader:
    return ConfigurationReloader(
        UpstreamReloader(upstreams, load_configs=read_configs),
        quotas,
        load_overrides=partial(load_quota_overrides, settings.config, build_quotas(settings)),
    )


@asynccontextmanager
async def _open_sender(
    settings: Settings, environment: Environment, guard: TargetGuard, authorities: TrustedAuthorities
) -> AsyncGenerator[Http1Sender | HttpxSender]:
    make_context = partial(make_tls_context, authorities)
    async with open_egress(settings, resolver=environment.host_resolver, make_context=make_context) as egress:
        sender = (
            HttpxSender(environment.egress, clock=environment.clock)
            if environment.egress
            else Http1Sender(guard, clock=environment.clock, ssl_context=make_context(), egress=egress)
        )
        async with aclosing(sender):
            yield sender


def _build_upstreams(
    settings: Settings,
    environment: Environment,
    configs: Sequence[UpstreamEntry],
    store: Store,
    children_folder: Path | None,
    authorities: TrustedAuthorities,
    *,
    own_id: str,
) -> tuple[UpstreamRegistry, MetadataClients]:
    """The upstreams, and the HTTP clients towards their authorization servers, which use the same look-ups."""
    uses_upstreams = not UPSTREAM_ROLES.isdisjoint(settings.roles)
    hosts = ConfiguredHosts(environment.host_resolver)
    metadata_clients = MetadataClients(hosts, authorities=authorities, allowed_networks=settings.callback_private_cidrs)
    upstreams = UpstreamRegistry(
        configs,
        clock=environment.clock,
        random_fraction=environment.random_fraction,
        predict_driver_name=predict_driver_name,
        connect_timeout_seconds=settings.connect_patience_seconds,
        store=store if uses_upstreams else None,  # it would delete the stored lists of upstreams that it does not have
        children_folder=children_folder,
        hosts=hosts,
        authorities=authorities,
        token_sources=TokenSourceFactory(
            hosts, metadata_clients, clock=environment.clock, store=store, authorities=authorities
        ),
        judge_config=OwnAddress({settings.base_url, settings.process_url}).judge_config,
        own_id=own_id,
    )
    return upstreams, metadata_clients


def _build_login_flow(
    settings: Settings,
    environment: Environment,
    upstreams: UpstreamRegistry,
    metadata_clients: MetadataClients,
    store: Store,
) -> LoginFlow:
    return OAuthLoginFlow(
        upstreams.get_configs,
        metadata_clients,
        StoredClients(store),
        clock=environment.clock,
        get_client_metadata_url=build_client_metadata_url(settings),
        random_bytes=environment.random_bytes,
    )


@asynccontextmanager
async def _open_measured_store(
    settings: Settings, environment: Environment, ring: KeyRing, sealer: Sealer, measurements: Measurements
) -> AsyncGenerator[Store]:
    """The store, whose keys this node has and whose writes are timed. The clock continues from the last process's."""
    clock = environment.clock
    async with open_store(settings.database_url, clock=clock, sealer=sealer, exclusive=True) as store:
        if (last := await store.read(lambda tx: tx.scheduling_time.load())) is not None:
            compare_with_last_process(clock, last, is_exclusive=store.is_exclusive)
        await require_key_ring(store, ring, settings)
        yield environment.wrap_store(MeasuredStore(store, clock=clock, write_seconds=measurements.write_seconds))


def compare_with_last_process(clock: Clock, last: datetime, *, is_exclusive: bool) -> None:
    """Continue from the last time, or let a clock that is far ahead wait for its confirmation. The log says both.

    On a store of several processes every node has continued already, by the time that all share (`postgres.shared_clock`).
    """
    if is_exclusive:
        clock.continue_from(last)
    facts = {"last_time": format_iso(last), "clock": format_iso(clock.now())}
    if (last - clock.now()).total_seconds() > CONTINUED_AHEAD_SECONDS_MAX:
        log.warning("clock.far_behind", extra=facts)
    if clock.confirm_after(last):
        log.warning("clock.far_ahead", extra=facts | {"confirmed_after_seconds": CONFIRMATION_SECONDS})


def build_quota_enforcer(settings: Settings, environment: Environment) -> QuotaEnforcer:
    defaults = build_quotas(settings)
    overrides = load_quota_overrides(settings.config, defaults)
    return QuotaEnforcer(defaults, clock=environment.clock, overrides=overrides)
