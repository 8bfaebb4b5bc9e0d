"""One node of the simulated cluster: the real services and workers over simulated seams."""

import asyncio
from random import Random
from typing import Final

from ringback.admission import AdmissionGate
from ringback.attended_calls import AttendedCalls
from ringback.bootstrap.service_parts import ServiceParts
from ringback.bootstrap.services import build_services
from ringback.domain.ids import IdGenerator
from ringback.janitor.config import JanitorConfig, Retention
from ringback.janitor.janitor import Janitor
from ringback.measurements import Measurements
from ringback.notifier.catch_up import CatchUps, CatchUpWorker
from ringback.notifier.dispatcher import Dispatcher, DispatcherConfig
from ringback.notifier.fan_out import FanOut
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.payload import PayloadBuilder
from ringback.notifier.recorder import Recorder
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.notifier.verifier import Verifier
from ringback.post_commit import CallHandoff, DeliveryHandoff
from ringback.resealing import Resealer
from ringback.runner.drivers.selection import BoundDriverProvider
from ringback.runner.leasing import PossibleCallers, RunnerConfig
from ringback.runner.runner import Runner
from ringback.services.calls.resume_recorder import CallResumeRecorder
from ringback.services.limits.quotas import QuotaEnforcer, Quotas
from ringback.services.logins.login_waits import LoginWaits
from ringback.signing.resume_token import ResumeTokenCodec
from ringback.supervisor import Supervisor, Worker
from ringback.upstreams.events.event_catalog import UpstreamEventCatalog
from ringback.upstreams.notification_hub import NotificationHub
from scripts.simulate_runs.clock import NodeClock
from scripts.simulate_runs.loop import SimulationLoop
from scripts.simulate_runs.node_services import (
    NO_CONFIGURATION,
    NO_CONNECTIONS,
    NO_LOGINS,
    NO_TASKS,
    POLICY,
    PUBLIC_URL,
    SERVICES_CONFIG,
    NamesOfNothing,
    OpenCatalog,
)
from scripts.simulate_runs.node_store import NodeStore
from scripts.simulate_runs.plan import Plan
from scripts.simulate_runs.receivers import NodeSender
from scripts.simulate_runs.sessions import NodeSessions

RETENTION: Final = Retention()
TOKEN_KEY: Final = b"k" * 32
JANITOR_SECONDS: Final = 20.0
"""Four times the service's default: the janitor's rounds are most of the work of an idle node."""
POLL_SECONDS: Final = 15.0
"""Of the other workers. Longer than the service's defaults, for the same reason. Only lost notifications and breakers' pauses
wait for it."""
DRAIN_SECONDS: Final = 5.0
"""How long a stopping node lets its calls go on."""


class Node:
    """A process of the service, from its start to its death. A restart makes another one."""

    def __init__(
        self,
        name: str,
        *,
        store: NodeStore,
        clock: NodeClock,
        sender: NodeSender,
        sessions: NodeSessions,
        chance: Random,
        plan: Plan,
    ) -> None:
        self.name = name
        self._plan = plan
        self.store = store
        self.sessions = sessions
        self.owner = name
        """Names the process in leases. A service draws it; here it is readable."""
        self._clock = clock
        self._sender = sender
        self._chance = chance
        self._ids = IdGenerator(clock, random_bytes=chance.randbytes)
        self._tokens = CallResumeTokens(
            ResumeTokenCodec([TOKEN_KEY], audience="ringback"), result_retention_seconds=RETENTION.result_seconds
        )
        self._measurements, self._attended_calls, self._delivery_handoff = (
            Measurements(),
            AttendedCalls(),
            DeliveryHandoff(),
        )
        fan_out = FanOut(
            ids=self._ids,
            payloads=PayloadBuilder(tokens=self._tokens, public_url=PUBLIC_URL),
            delivery_handoff=self._delivery_handoff,
        )
        self._catch_ups = CatchUps(fan_out)
        self._recorder = Recorder(
            ids=self._ids,
            fan_out=fan_out,
            attended_calls=self._attended_calls,
            measurements=self._measurements,
            result_retention_seconds=RETENTION.result_seconds,
        )
        self._call_handoff = CallHandoff()
        self._admission = AdmissionGate(cpu_time=clock.monotonic)
        self._quotas = QuotaEnforcer(Quotas(open_calls=plan.open_calls_max), clock=clock)
        self.login_waits = LoginWaits(recorder=self._recorder, public_url=PUBLIC_URL)
        self._stop = asyncio.Event()
        self.dispatcher = self._build_dispatcher()
        self.runner = self._build_runner()
        self.services = build_services(self._collect_parts(), SERVICES_CONFIG)

    async def run(self) -> None:
        """Run the workers until `request_stop`."""
        await Supervisor(self._build_workers(), clock=self._clock).run(self._stop)

    def request_stop(self) -> None:
        """A graceful shutdown: nothing new begins, and what runs may end for `DRAIN_SECONDS`."""
        self.services.lifecycle.begin_shutdown()
        self._stop.set()

    def count_permits(self) -> int:
        """Attempts that the dispatcher still counts as in flight."""
        return self.dispatcher._limiter.in_flight  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - a leak is invisible from outside

    def count_capacity(self) -> int:
        """Calls that the runner still counts as running."""
        leasing = self.runner._leasing  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - as above
        return leasing.permits.count_in_use()

    def _build_workers(self) -> list[Worker]:
        """The workers that have anything to do in this plan: the others only poll."""
        workers: list[Worker] = [self.runner]
        if any(webhook.is_verified for webhook in self._plan.webhooks):
            workers.append(self._build_verifier())
        if any(webhook.hears_past or webhook.refresh_seconds for webhook in self._plan.webhooks):
            workers.append(self._build_catch_up_worker())
        if self._plan.resealed_at_seconds is not None:
            workers.append(Resealer(store=self.store, sleep=self._clock.sleep))
        return [*workers, self.dispatcher, self._build_janitor()]

    def _build_runner(self) -> Runner:
        return Runner(
            store=self.store,
            clock=self._clock,
            ids=self._ids,
            recorder=self._recorder,
            attended_calls=self._attended_calls,
            sessions=BoundDriverProvider(self.sessions, clock=self._clock),
            notification_hub=NotificationHub(),
            call_handoff=self._call_handoff,
            admission=self._admission,
            login_waits=self.login_waits,
            config=RunnerConfig(
                owner=self.owner,
                poll_seconds=POLL_SECONDS,
                drain_seconds=DRAIN_SECONDS,
                possible_callers=PossibleCallers.ANYBODY,  # the principals of a plan have no keys, as with access tokens
            ),
        )

    def _build_dispatcher(self) -> Dispatcher:
        return Dispatcher(
            store=self.store,
            clock=self._clock,
            ids=self._ids,
            sender=self._sender,
            recorder=self._recorder,
            delivery_handoff=self._delivery_handoff,
            measurements=self._measurements,
            policy=POLICY,
            random_fraction=self._chance.random,
            admission=self._admission,
            config=DispatcherConfig(owner=self.owner, poll_seconds=POLL_SECONDS),
        )

    def _build_verifier(self) -> Verifier:
        return Verifier(
            store=self.store,
            clock=self._clock,
            ids=self._ids,
            requester=self._sender,
            policy=POLICY,
            random_fraction=self._chance.random,
            poll_seconds=POLL_SECONDS,
        )

    def _build_catch_up_worker(self) -> CatchUpWorker:
        return CatchUpWorker(store=self.store, catch_ups=self._catch_ups, clock=self._clock, poll_seconds=POLL_SECONDS)

    def _build_janitor(self) -> Janitor:
        return Janitor(
            store=self.store,
            recorder=self._recorder,
            measurements=self._measurements,
            clock=self._clock,
            config=JanitorConfig(retention=RETENTION, interval_seconds=JANITOR_SECONDS),
        )

    def _collect_parts(self) -> ServiceParts:
        return ServiceParts(
            store=self.store,
            clock=self._clock,
            ids=self._ids,
            recorder=self._recorder,
            catch_ups=self._catch_ups,
            attended_calls=self._attended_calls,
            measurements=self._measurements,
            resume_tokens=self._tokens,
            call_resumes=CallResumeRecorder(store=self.store, clock=self._clock),
            call_handoff=self._call_handoff,
            admission=self._admission,
            quotas=self._quotas,
            target_guard=TargetGuard(POLICY, resolver=NamesOfNothing()),
            requester=self._sender,
            tool_catalog=OpenCatalog(),
            event_catalog=UpstreamEventCatalog({}),
            task_lookup=NO_TASKS,
            configuration=NO_CONFIGURATION,
            upstream_connections=NO_CONNECTIONS,
            login_flow=NO_LOGINS,
            login_waits=self.login_waits,
        )


def make_node_clock(loop: SimulationLoop, chance: Random, *, wall_offset_seconds: float) -> NodeClock:
    """The clock of a new process: its estimate of the database's time is wrong by less than half a round trip."""
    return NodeClock(
        loop,
        error_seconds=chance.uniform(-0.02, 0.02),
        wall_offset_seconds=wall_offset_seconds,
        monotonic_offset_seconds=chance.uniform(0.0, 1e6),
    )
