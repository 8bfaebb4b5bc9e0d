"""The work behind the doors, each to be kept up by the supervisor."""

from ringback.bootstrap.parts import Parts
from ringback.bootstrap.policies import target_policy
from ringback.keyring import load_signing_keys
from ringback.notifier.dispatcher import Dispatcher, DispatcherConfig
from ringback.notifier.verifier import Verifier
from ringback.runner.runner import Runner, RunnerConfig
from ringback.runner.watchman import Watchman
from ringback.settings import Settings


def runner(parts: Parts, settings: Settings) -> Runner:
    return Runner(
        store=parts.store,
        clock=parts.world.clock,
        ids=parts.ids,
        recorder=parts.recorder,
        sessions=parts.upstreams,
        live=parts.upstreams.live,
        births=parts.births,
        admission=parts.admission,
        config=RunnerConfig(owner=parts.owner, drain_seconds=settings.drain_seconds),
    )


def watchman(parts: Parts) -> Watchman:
    return Watchman(
        store=parts.store,
        clock=parts.world.clock,
        recorder=parts.recorder,
        passage=parts.upstreams.passage,
        changes=parts.changes,
    )


def dispatcher(parts: Parts, settings: Settings) -> Dispatcher:
    return Dispatcher(
        store=parts.store,
        clock=parts.world.clock,
        ids=parts.ids,
        sender=parts.sender,
        recorder=parts.recorder,
        policy=target_policy(settings),
        chance=parts.world.chance,
        admission=parts.admission,
        config=DispatcherConfig(owner=parts.owner),
        signing_keys=load_signing_keys(settings),
    )


def verifier(parts: Parts, settings: Settings) -> Verifier:
    return Verifier(
        store=parts.store,
        clock=parts.world.clock,
        ids=parts.ids,
        asker=parts.sender,
        policy=target_policy(settings),
        chance=parts.world.chance,
        signing_keys=load_signing_keys(settings),
    )
