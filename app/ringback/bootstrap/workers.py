"""Builds the background workers that the supervisor runs, by role.

    api          the recorder of resumes
    runner       the runner, the recorders of upstreams' changes and events
    dispatcher   the verifier, the catch-up worker, the dispatcher, and the holder of the duty that shows that one runs
    janitor      the janitor, the counter of hourly rows, and the resealer while the key ring has more than one key

Besides, each node logs the roles that no node runs: a worker of its first role.

The order is the one in which they stop: what makes work stops before what does it.
"""

from collections.abc import Mapping, Sequence

from ringback.bootstrap.components import Components
from ringback.bootstrap.configuration import build_target_policy
from ringback.domain.roles import CHANGES_DUTY, COUNT_DUTY, DISPATCH_DUTY, Role
from ringback.janitor.config import JanitorConfig, Retention
from ringback.janitor.hour_counter import HourCounter
from ringback.janitor.janitor import Janitor
from ringback.keyring import load_signing_keys
from ringback.leadership import DutyHolder, Leadership
from ringback.notifier.attempt_spans import AttemptTracer
from ringback.notifier.catch_up import CatchUpWorker
from ringback.notifier.dispatcher import Dispatcher, DispatcherConfig
from ringback.notifier.verifier import Verifier
from ringback.resealing import Resealer
from ringback.runner.drivers.selection import BoundDriverProvider
from ringback.runner.leasing import PossibleCallers, RunnerConfig
from ringback.runner.runner import Runner
from ringback.services.insights.missing_roles import RoleWatch
from ringback.services.key_registration import KeyRegistration
from ringback.settings import Settings
from ringback.supervisor import Worker
from ringback.upstreams.events.event_recorder import FOLLOW_DUTY, UpstreamEventRecorder
from ringback.upstreams.subscriptions.upstream_changes import UpstreamChangeRecorder


def build_workers(components: Components, settings: Settings, retention: Retention) -> Mapping[Role, Sequence[Worker]]:
    """The workers of this node's roles, in the order in which they stop."""
    workers: dict[Role, Sequence[Worker]] = {}
    if Role.API in settings.roles:
        workers[Role.API] = [components.call_resumes]
    if Role.RUNNER in settings.roles:
        workers[Role.RUNNER] = [
            build_runner(components, settings),
            build_change_recorder(components),
            build_event_recorder(components),
        ]
    if Role.DISPATCHER in settings.roles:
        workers[Role.DISPATCHER] = [
            build_verifier(components, settings),
            build_catch_up_worker(components),
            build_dispatcher(components, settings),
            DutyHolder("dispatch-duty", build_leadership(components, DISPATCH_DUTY)),
        ]
    if Role.JANITOR in settings.roles:
        workers[Role.JANITOR] = build_maintenance(components, retention)
    first = next(iter(workers))
    workers[first] = [
        *workers[first],
        RoleWatch(store=components.store, clock=components.clock),
        KeyRegistration(store=components.store, sealer=components.sealer),
    ]
    return workers


def build_leadership(components: Components, duty: str) -> Leadership:
    return Leadership(store=components.store, clock=components.clock, owner=components.owner, duty=duty)


def build_maintenance(components: Components, retention: Retention) -> Sequence[Worker]:
    store, clock = components.store, components.clock
    config = JanitorConfig(retention=retention, exclusive_owner=components.owner if store.is_exclusive else None)
    workers: list[Worker] = [
        Janitor(
            store=store,
            recorder=components.recorder,
            measurements=components.measurements,
            clock=clock,
            config=config,
        ),
        HourCounter(
            store=store,
            clock=clock,
            leadership=build_leadership(components, COUNT_DUTY),
        ),
    ]
    if components.key_count > 1:
        workers.append(Resealer(store=store, sleep=clock.sleep))
    return workers


def build_catch_up_worker(components: Components) -> CatchUpWorker:
    return CatchUpWorker(store=components.store, catch_ups=components.catch_ups, clock=components.clock)


def build_runner(components: Components, settings: Settings) -> Runner:
    return Runner(
        store=components.store,
        clock=components.clock,
        ids=components.ids,
        recorder=components.recorder,
        attended_calls=components.attended_calls,
        sessions=BoundDriverProvider(components.upstreams, clock=components.clock),
        notification_hub=components.upstreams.notification_hub,
        call_handoff=components.call_handoff,
        admission=components.admission,
        login_waits=components.login_waits,
        config=RunnerConfig(
            owner=components.owner,
            drain_seconds=settings.drain_seconds,
            possible_callers=find_possible_callers(settings),
        ),
        tracer=components.environment.tracer,
    )


def find_possible_callers(settings: Settings) -> PossibleCallers:
    if settings.auth == "off":
        return PossibleCallers.ONE
    return PossibleCallers.KEY_OWNERS if settings.oidc_issuer is None else PossibleCallers.ANYBODY


def build_change_recorder(components: Components) -> UpstreamChangeRecorder:
    return UpstreamChangeRecorder(
        store=components.store,
        clock=components.clock,
        recorder=components.recorder,
        proxy=components.upstreams.proxy,
        changes=components.change_stream,
        leadership=build_leadership(components, CHANGES_DUTY),
    )


def build_event_recorder(components: Components) -> UpstreamEventRecorder:
    return UpstreamEventRecorder(
        store=components.store,
        clock=components.clock,
        ids=components.ids,
        recorder=components.recorder,
        connections=components.upstreams.connections.shared,
        catalog=components.upstreams.event_catalog,
        event_quota=components.quotas,
        leadership=build_leadership(components, FOLLOW_DUTY),
    )


def build_dispatcher(components: Components, settings: Settings) -> Dispatcher:
    return Dispatcher(
        store=components.store,
        clock=components.clock,
        ids=components.ids,
        sender=components.sender,
        recorder=components.recorder,
        delivery_handoff=components.delivery_handoff,
        measurements=components.measurements,
        policy=build_target_policy(settings),
        random_fraction=components.environment.random_fraction,
        admission=components.admission,
        config=DispatcherConfig(owner=components.owner),
        signing_keys=load_signing_keys(settings),
        attempt_tracer=build_attempt_tracer(components, settings),
    )


def build_attempt_tracer(components: Components, settings: Settings) -> AttemptTracer | None:
    tracer = components.environment.tracer
    return None if tracer is None else AttemptTracer(tracer, sends_context=settings.callback_traceparent)


def build_verifier(components: Components, settings: Settings) -> Verifier:
    return Verifier(
        store=components.store,
        clock=components.clock,
        ids=components.ids,
        requester=components.sender,
        policy=build_target_policy(settings),
        random_fraction=components.environment.random_fraction,
        signing_keys=load_signing_keys(settings),
    )
