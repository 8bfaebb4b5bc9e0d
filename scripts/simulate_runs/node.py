"""One node of the simulated cluster: the real services and workers over simulated seams."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from ringback.admission import AdmissionGate
from ringback.domain.call import RerunPolicy
from ringback.domain.ids import IdGenerator
from ringback.domain.principal import Principal
from ringback.domain.upstreams import SkippedUpstream, ToolConfig, ToolInfo, UpstreamInfo
from ringback.janitor import Janitor, JanitorConfig, Retention
from ringback.notifier.catch_up import CatchUpWorker
from ringback.notifier.dispatcher import Dispatcher, DispatcherConfig
from ringback.notifier.http.guard import TargetGuard
from ringback.notifier.http.resolver import NameNotFound, Resolution
from ringback.notifier.http.target import TargetPolicy
from ringback.notifier.payload import PayloadBuilder
from ringback.notifier.recorder import Recorder
from ringback.notifier.requested_deliveries import RequestedDeliveries
from ringback.notifier.resume_tokens import CallResumeTokens
from ringback.notifier.verifier import Verifier
from ringback.post_commit import CallHandoff
from ringback.runner.drivers import BoundDriverProvider
from ringback.runner.leasing import RunnerConfig
from ringback.runner.runner import Runner
from ringback.services.attempt_scheduling import AttemptScheduler
from ringback.services.calls import Calls
from ringback.services.event_types import EventTypes
from ringback.services.events import Events
from ringback.services.input_answers import InputAnswers
from ringback.services.lifecycle import Lifecycle
from ringback.services.login_waits import LoginWaits
from ringback.services.quotas import QuotaEnforcer, Quotas
from ringback.services.registrations import WebhookRegistrations
from ringback.services.reports import CallReports
from ringback.services.resume import CallResumption
from ringback.services.upstream_controls import UpstreamControls
from ringback.services.verification import VerificationPolicy, WebhookVerification
from ringback.services.webhooks import Webhooks
from ringback.signing.resume_token import ResumeTokenCodec
from ringback.supervisor import Supervisor, Worker
from ringback.upstreams.catalog.payload_schemas import JsonPayloadSchemas
from ringback.upstreams.events.event_catalog import UpstreamEventCatalog
from ringback.upstreams.notification_hub import NotificationHub
from scripts.simulate_runs.clock import NodeClock
from scripts.simulate_runs.loop import SimulationLoop
from scripts.simulate_runs.node_store import NodeStore
from scripts.simulate_runs.plan import Plan
from scripts.simulate_runs.receivers import NodeSender
from scripts.simulate_runs.sessions import NodeSessions

RETENTION: Final = Retention()
TOKEN_KEY: Final = b"k" * 32
JANITOR_SECONDS: Final = 20.0
"""Four times the service's default: the janitor's rounds are most of the work of an idle node."""
RUNNER_POLL_SECONDS: Final = 15.0
DISPATCHER_POLL_SECONDS: Final = 15.0
"""Longer than the service's defaults, for the same reason. Only lost notifications and breakers' pauses wait for these."""
DRAIN_SECONDS: Final = 5.0
"""How long a stopping node lets its calls go on."""
PUBLIC_URL: Final = "https://ringback.example"
POLICY: Final = TargetPolicy()


class NamesOfNothing:
    """Implements `notifier.http.resolver.Resolver`: there are no names, because every receiver has an address."""

    async def __call__(self, host: str, /) -> Resolution:
        raise NameNotFound(host)

    async def aclose(self) -> None:
        """Nothing is open."""


class OpenCatalog:
    """Implements `domain.upstreams.ToolCatalog`: every tool of every upstream exists."""

    def list_upstreams(self, principal: Principal | None = None) -> Sequence[UpstreamInfo]:  # noqa: ARG002 - as below
        return []

    def has_upstream(self, upstream: str) -> bool:  # noqa: ARG002 - the names of ToolCatalog
        return True

    def list_skipped(self) -> Sequence[SkippedUpstream]:
        return []

    async def list_tools(self, upstream: str, *, principal: Principal) -> Sequence[ToolInfo]:  # noqa: ARG002 - as above
        return []

    async def check_call(self, *args: Any, **kwargs: Any) -> None:
        """Every call is possible."""

    def is_repeatable(self, upstream: str, tool: str, *, principal: Principal) -> bool:  # noqa: ARG002 - as above
        return False

    def get_input_schema(self, *args: Any, **kwargs: Any) -> Mapping[str, Any] | None:  # noqa: ARG002 - as above
        return None

    def get_tool_config(self, upstream: str, tool: str) -> ToolConfig:  # noqa: ARG002 - as above
        return ToolConfig(rerun_policy=RerunPolicy.NEVER)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeServices:
    """The use cases that clients of a simulation call."""

    calls: Calls
    input_answers: InputAnswers
    reports: CallReports
    registrations: WebhookRegistrations
    webhooks: Webhooks
    events: Events
    resumption: CallResumption


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
        self._recorder = Recorder(
            ids=self._ids,
            payloads=PayloadBuilder(tokens=self._tokens, public_url=PUBLIC_URL),
            result_retention_seconds=RETENTION.result_seconds,
        )
        self._post_commit = CallHandoff()
        self._admission = AdmissionGate()
        self._quotas = QuotaEnforcer(Quotas(open_calls=plan.open_calls_max), clock=clock)
        self._lifecycle = Lifecycle()
        self._stop = asyncio.Event()
        self.dispatcher = self._build_dispatcher()
        self.runner = self._build_runner()
        self.services = self._build_services()

    async def run(self) -> None:
        """Run the workers until `request_stop`."""
        await Supervisor(self._build_workers(), clock=self._clock).run(self._stop)

    def request_stop(self) -> None:
        """A graceful shutdown: nothing new begins, and what runs may end for `DRAIN_SECONDS`."""
        self._lifecycle.begin_shutdown()
        self._stop.set()

    def count_permits(self) -> int:
        """Attempts that the dispatcher still counts as in flight."""
        return self.dispatcher._limiter.in_flight  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - a leak is invisible from outside

    def count_capacity(self) -> int:
        """Calls that the runner still counts as running."""
        leasing = self.runner._leasing  # noqa: SLF001 # pyright: ignore[reportPrivateUsage] - as above
        return leasing._in_use.total()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]

    def _build_workers(self) -> list[Worker]:
        """The workers that have anything to do in this plan: the others only poll."""
        workers: list[Worker] = [self.runner]
        if any(webhook.is_verified for webhook in self._plan.webhooks):
            workers.append(self._build_verifier())
        if any(webhook.hears_past for webhook in self._plan.webhooks):
            workers.append(CatchUpWorker(store=self.store, catch_ups=self._recorder.catch_ups, clock=self._clock))
        return [*workers, self.dispatcher, self._build_janitor()]

    def _build_runner(self) -> Runner:
        return Runner(
            store=self.store,
            clock=self._clock,
            ids=self._ids,
            recorder=self._recorder,
            sessions=BoundDriverProvider(self.sessions, clock=self._clock),
            notification_hub=NotificationHub(),
            post_commit=self._post_commit,
            admission=self._admission,
            login_waits=LoginWaits(recorder=self._recorder, public_url=PUBLIC_URL),
            config=RunnerConfig(owner=self.owner, poll_seconds=RUNNER_POLL_SECONDS, drain_seconds=DRAIN_SECONDS),
        )

    def _build_dispatcher(self) -> Dispatcher:
        return Dispatcher(
            store=self.store,
            clock=self._clock,
            ids=self._ids,
            sender=self._sender,
            recorder=self._recorder,
            policy=POLICY,
            random_fraction=self._chance.random,
            admission=self._admission,
            config=DispatcherConfig(owner=self.owner, poll_seconds=DISPATCHER_POLL_SECONDS),
        )

    def _build_verifier(self) -> Verifier:
        return Verifier(
            store=self.store,
            clock=self._clock,
            ids=self._ids,
            requester=self._sender,
            policy=POLICY,
            random_fraction=self._chance.random,
        )

    def _build_janitor(self) -> Janitor:
        return Janitor(
            store=self.store,
            recorder=self._recorder,
            clock=self._clock,
            config=JanitorConfig(retention=RETENTION, interval_seconds=JANITOR_SECONDS),
        )

    def _build_services(self) -> NodeServices:
        guard = TargetGuard(POLICY, resolver=NamesOfNothing())
        verification = WebhookVerification(
            store=self.store,
            clock=self._clock,
            lifecycle=self._lifecycle,
            targets=POLICY,
            policy=VerificationPolicy(),
        )
        shared: dict[str, Any] = {
            "store": self.store,
            "ids": self._ids,
            "quotas": self._quotas,
            "lifecycle": self._lifecycle,
        }
        catalog = OpenCatalog()
        attempts = AttemptScheduler(store=self.store, clock=self._clock, targets=POLICY)
        event_types = EventTypes(
            store=self.store,
            clock=self._clock,
            lifecycle=self._lifecycle,
            catalog=UpstreamEventCatalog({}),
            payload_schemas=JsonPayloadSchemas(),
        )
        registrations = WebhookRegistrations(
            **shared,
            clock=self._clock,
            recorder=self._recorder,
            guard=guard,
            verification=verification,
            attempts=attempts,
            catalog=catalog,
            event_types=event_types,
        )
        return NodeServices(
            calls=Calls(
                **shared,
                clock=self._clock,
                catalog=catalog,
                recorder=self._recorder,
                tokens=self._tokens,
                registrations=registrations,
                post_commit=self._post_commit,
                admission=self._admission,
                upstream_controls=UpstreamControls(store=self.store, clock=self._clock, catalog=catalog),
            ),
            input_answers=InputAnswers(self.store, self._recorder),
            reports=CallReports(**shared, recorder=self._recorder, tokens=self._tokens, registrations=registrations),
            registrations=registrations,
            webhooks=Webhooks(
                **shared,
                recorder=self._recorder,
                requested_deliveries=RequestedDeliveries(ids=self._ids),
                attempts=attempts,
                guard=guard,
                verification=verification,
                catalog=catalog,
                event_types=event_types,
            ),
            events=Events(store=self.store, clock=self._clock, lifecycle=self._lifecycle),
            resumption=CallResumption(
                store=self.store, clock=self._clock, tokens=self._tokens, lifecycle=self._lifecycle
            ),
        )


def make_node_clock(loop: SimulationLoop, chance: Random, *, wall_offset_seconds: float) -> NodeClock:
    """The clock of a new process: its estimate of the database's time is wrong by less than half a round trip."""
    return NodeClock(
        loop,
        error_seconds=chance.uniform(-0.02, 0.02),
        wall_offset_seconds=wall_offset_seconds,
        monotonic_offset_seconds=chance.uniform(0.0, 1e6),
    )
