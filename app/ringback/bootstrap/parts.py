"""What services and workers share: the store, the upstreams, the recorder, the sender."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ringback.admission import AdmissionGate
from ringback.bootstrap.keys import key_ring_of, require_keys
from ringback.bootstrap.policies import quotas_of, target_policy
from ringback.bootstrap.world import ReadConfigs, World
from ringback.domain.ids import Ids
from ringback.domain.ports import Store
from ringback.domain.sealed import Sealer
from ringback.domain.upstreams import Configured
from ringback.janitor import Retention
from ringback.keyring import token_keys
from ringback.notifier.body import Bodies
from ringback.notifier.configured_hosts import ConfiguredHosts
from ringback.notifier.http1_sender import Http1Sender
from ringback.notifier.httpx_sender import HttpxSender
from ringback.notifier.record import Recorder
from ringback.notifier.resume_tokens import CallTokens
from ringback.notifier.target_guard import TargetGuard
from ringback.runner.changes import ChangeStream
from ringback.runner.reloading import Reloading
from ringback.runner.upstreams import UpstreamConfig, Upstreams
from ringback.services.births import Births
from ringback.services.quotas import QuotaKeeper
from ringback.settings import Settings
from ringback.signing.resume_token import ResumeTokens
from ringback.signing.sealing import AesGcmSealer, KeyRing
from ringback.storage.open import open_store, sqlite_path

AUDIENCE: Final = "ringback"
"""Of resume tokens. Not the public URL: a service that moves must still read the tokens that it gave out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What services and workers share."""

    world: World
    store: Store
    upstreams: Upstreams
    changes: ChangeStream
    """What they tell unasked, from before they were opened."""
    configured: Configured
    ids: Ids
    owner: str
    """Names this process in leases."""
    tokens: CallTokens
    recorder: Recorder
    births: Births
    admission: AdmissionGate
    guard: TargetGuard
    sender: Http1Sender | HttpxSender
    quotas: QuotaKeeper
    sealer: Sealer
    keys: int
    """In the key ring."""


@asynccontextmanager
async def open_parts(
    settings: Settings,
    upstream_configs: Sequence[UpstreamConfig],
    reread: ReadConfigs | None,
    world: World,
    retention: Retention,
) -> AsyncGenerator[Parts]:
    ring = await key_ring_of(settings, world)
    sealer = new_sealer(ring, world)
    ids = Ids(world.clock, random_bytes=world.random_bytes)
    tokens = CallTokens(
        ResumeTokens(token_keys(ring), audience=AUDIENCE), result_retention_seconds=retention.result_seconds
    )
    bodies = Bodies(tokens=tokens, public_url=settings.base_url)
    guard = TargetGuard(target_policy(settings), resolver=world.resolver)
    sender = HttpxSender(world.egress, clock=world.clock) if world.egress else Http1Sender(guard, clock=world.clock)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(guard.aclose)
        stack.push_async_callback(sender.aclose)
        store = await stack.enter_async_context(
            open_store(settings.database_url, clock=world.clock, sealer=sealer, exclusive=True)
        )
        if store.exclusive and (last := await store.read(lambda tx: tx.scheduling_time.last())) is not None:
            world.clock.continue_from(last)
        await require_keys(store, ring, settings)
        store = world.store(store)
        upstreams = Upstreams(
            upstream_configs,
            clock=world.clock,
            chance=world.chance,
            connect_patience_seconds=settings.connect_patience_seconds,
            store=store,
            children_folder=children_folder(sqlite_path(settings.database_url)),
            hosts=ConfiguredHosts(world.host_resolver),
        )
        yield Parts(
            world=world,
            store=store,
            changes=stack.enter_context(upstreams.changes.listen()),
            upstreams=await stack.enter_async_context(upstreams),
            configured=Reloading(upstreams, read=reread or (lambda: upstream_configs)),
            ids=ids,
            owner=ids.lease(),
            tokens=tokens,
            recorder=Recorder(ids=ids, bodies=bodies, result_retention_seconds=retention.result_seconds),
            births=Births(),
            admission=AdmissionGate(),
            guard=guard,
            sender=sender,
            quotas=QuotaKeeper(quotas_of(settings), clock=world.clock),
            sealer=sealer,
            keys=len(ring.keys),
        )


def new_sealer(ring: KeyRing, world: World) -> AesGcmSealer:
    return AesGcmSealer(ring.keys, current=ring.current, random=world.random_bytes)


def children_folder(database: Path) -> Path:
    """Where the child processes of the service that serves this database are written down."""
    return database.with_name(f"{database.name}-children")
