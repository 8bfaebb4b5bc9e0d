"""Builds the background workers that the supervisor runs."""

from ringback.bootstrap.components import Components
from ringback.bootstrap.configuration import build_target_policy
from ringback.keyring import load_signing_keys
from ringback.notifier.dispatcher import Dispatcher, DispatcherConfig
from ringback.notifier.verifier import Verifier
from ringback.runner.drivers import BoundDriverProvider
from ringback.runner.leasing import RunnerConfig
from ringback.runner.runner import Runner
from ringback.settings import Settings
from ringback.upstreams.subscriptions.upstream_changes import UpstreamChangeRecorder


def build_runner(components: Components, settings: Settings) -> Runner:
    return Runner(
        store=components.store,
        clock=components.environment.clock,
        ids=components.ids,
        recorder=components.recorder,
        sessions=BoundDriverProvider(components.upstreams, clock=components.environment.clock),
        notification_hub=components.upstreams.notification_hub,
        post_commit=components.post_commit,
        admission=components.admission,
        config=RunnerConfig(owner=components.owner, drain_seconds=settings.drain_seconds),
    )


def build_change_recorder(components: Components) -> UpstreamChangeRecorder:
    return UpstreamChangeRecorder(
        store=components.store,
        clock=components.environment.clock,
        recorder=components.recorder,
        proxy=components.upstreams.proxy,
        changes=components.change_stream,
    )


def build_dispatcher(components: Components, settings: Settings) -> Dispatcher:
    return Dispatcher(
        store=components.store,
        clock=components.environment.clock,
        ids=components.ids,
        sender=components.sender,
        recorder=components.recorder,
        policy=build_target_policy(settings),
        random_fraction=components.environment.random_fraction,
        admission=components.admission,
        config=DispatcherConfig(owner=components.owner),
        signing_keys=load_signing_keys(settings),
    )


def build_verifier(components: Components, settings: Settings) -> Verifier:
    return Verifier(
        store=components.store,
        clock=components.environment.clock,
        ids=components.ids,
        requester=components.sender,
        policy=build_target_policy(settings),
        random_fraction=components.environment.random_fraction,
        signing_keys=load_signing_keys(settings),
    )
