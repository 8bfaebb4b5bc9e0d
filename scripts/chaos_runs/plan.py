"""The plan of a seed: when each call starts, and at which step or moment each process is killed or stopped. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tests.support.short_leases import TAKEOVER_SECONDS


class Kind(StrEnum):
    """Upstream and tool of a call. Each uses a different driver."""

    STDIO = "stdio/echo"
    HTTP = "modern/echo"
    TASK = "modern/work"
    ROUNDS = "modern/confirm"
    LEGACY_TASK = "legacy/long"
    STREAM = "legacy/work"

    @property
    def upstream(self) -> str:
        return self.partition("/")[0]

    @property
    def tool(self) -> str:
        return self.partition("/")[2]


class Target(StrEnum):
    SERVICE = "service"
    """One node, if there are several."""
    MODERN = "modern"
    LEGACY = "legacy"
    STDIO = "stdio"
    DATABASE = "database"
    NETWORK = "network"
    """The connections between one node and the database."""


class Damage(StrEnum):
    KILL = "kill"
    """SIGKILL, and a restart after the fault's time. For the database: an immediate stop, as by a crash."""
    FREEZE = "freeze"
    """SIGSTOP, and SIGCONT after the fault's time. For a network: nothing arrives meanwhile."""
    CUT = "cut"
    STRAND_NODE = "strand node"
    """The database's side of each connection is closed, and the node receives nothing."""
    STRAND_DATABASE = "strand database"
    """The node's side is reset, and the database receives nothing: its sessions keep their transactions and locks."""


ONE_NODE_TARGETS: Final = (Target.SERVICE, Target.MODERN, Target.LEGACY, Target.STDIO)
CLUSTER_TARGETS: Final = (*Target, Target.SERVICE, Target.DATABASE, Target.NETWORK, Target.NETWORK)
"""Most faults hit what several nodes share; a network has four kinds of damage."""
NETWORK_DAMAGES: Final = (Damage.FREEZE, Damage.CUT, Damage.STRAND_NODE, Damage.STRAND_DATABASE)

UNITS: Final = (
    "Calls.start_call.<locals>",
    "Calls.cancel_call.<locals>",
    "Runner._lease_queued_calls",
    "LeasedCall._write_dispatched",
    "LeasedCall.save_handle.<locals>",
    "LeasedCall.mark_answers_sent.<locals>",
    "LeasedCall._record_progress.<locals>",
    "LeaseEnd.park_call.<locals>",
    "InputAnswers.answer_input.<locals>",
    "CompletionBatcher._record_completions",
    "DeliveryLeasing._lease_due",
    "AttemptRecorder.record_attempts",
    "RecoveryTasks._recover_calls_of_others",
)
"""The durable steps of a call: prefixes of the qualified names of units of work."""

CLUSTER_UNITS: Final = (*UNITS, "RecoveryTasks._recover_calls_with_expired_lease")
"""Leases of a dead node are recovered by another one."""

CALLS: Final = 24
RUN_SECONDS: Final = 2.0
"""All calls start within this time. With the restarts after kills, a run takes a few seconds."""
CLUSTER_RUN_SECONDS: Final = 6.0
"""Several nodes start more slowly, and each fault of the database touches all of them."""
LONG_FREEZE_SECONDS: Final = TAKEOVER_SECONDS + 2.0
"""A node that is frozen for so long wakes up with leases that others have taken over."""
CLOCKS_AHEAD_SECONDS: Final = (0.0, 0.0, 3600.0, -3600.0)
"""How far the clock of a node's machine is wrong."""
STEP_SECONDS: Final = 2.0
"""A service run that has not reached its step by then ends without it."""


class Store(StrEnum):
    SQLITE = "sqlite"
    POSTGRES = "postgres"


@dataclass(frozen=True, slots=True, kw_only=True)
class KillPoint:
    """A step of a service run: just before or just after the n-th execution of a unit of work."""

    unit: str
    after: bool
    nth: int
    stops: bool
    """True: SIGTERM. False: SIGKILL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRun:
    """One process of the service. It ends at its step, or after `lifetime_seconds` if it has none."""

    step: KillPoint | None
    lifetime_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultInjection:
    """What happens to a process or a network from outside."""

    target: Target
    damage: Damage
    at_seconds: float
    freeze_seconds: float
    node: int = 0
    """The node that it happens to, or whose child process or network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedNode:
    service_runs: tuple[ServiceRun, ...] = ()
    clock_ahead_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    key: str
    kind: Kind
    unsafe: bool
    at_seconds: float
    work_seconds: float
    answer_seconds: float
    """How long the agent waits before it answers a request for input."""
    cancel_seconds: float | None
    """From the acknowledgement to the cancellation."""
    repeats: int
    """How often the start is repeated with its key, as by a client that lost the response."""
    callback: bool
    """Whether the call has its own callback, besides the webhook for all calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    seed: int
    store: Store
    calls: tuple[PlannedCall, ...]
    nodes: tuple[PlannedNode, ...]
    faults: tuple[FaultInjection, ...]


def make_plan(seed: int, *, calls: int = CALLS) -> Plan:
    """The plan of one service on SQLite."""
    chance = random.Random(seed)  # noqa: S311 - a seed replays its plan
    return Plan(
        seed=seed,
        store=Store.SQLITE,
        calls=tuple(_call(chance, number, RUN_SECONDS) for number in range(calls)),
        nodes=(PlannedNode(service_runs=tuple(make_service_run(chance, UNITS) for _ in range(chance.randint(2, 4)))),),
        faults=tuple(make_fault(chance) for _ in range(chance.randint(1, 4))),
    )


def make_cluster_plan(seed: int, *, nodes: int, calls: int = CALLS) -> Plan:
    """The plan of several nodes on PostgreSQL."""
    chance = random.Random(seed)  # noqa: S311 - a seed replays its plan
    return Plan(
        seed=seed,
        store=Store.POSTGRES,
        calls=tuple(_call(chance, number, CLUSTER_RUN_SECONDS) for number in range(calls)),
        nodes=tuple(_node(chance) for _ in range(nodes)),
        faults=tuple(make_cluster_fault(chance, nodes) for _ in range(chance.randint(2, 5))),
    )


def _node(chance: random.Random) -> PlannedNode:
    return PlannedNode(
        service_runs=tuple(
            make_service_run(chance, CLUSTER_UNITS, step_seconds=CLUSTER_RUN_SECONDS)
            for _ in range(chance.randint(0, 2))
        ),
        clock_ahead_seconds=chance.choice(CLOCKS_AHEAD_SECONDS),
    )


def _call(chance: random.Random, number: int, run_seconds: float) -> PlannedCall:
    return PlannedCall(
        key=f"work-{number}",
        kind=chance.choice(list(Kind)),
        unsafe=chance.random() < 0.7,  # noqa: PLR2004 - most tools are
        at_seconds=chance.uniform(0, run_seconds),
        work_seconds=chance.uniform(0.0, 0.5),
        answer_seconds=chance.uniform(0.0, 0.5),
        cancel_seconds=chance.uniform(0.0, 0.5) if chance.random() < 0.15 else None,  # noqa: PLR2004 - some are
        repeats=chance.choice((0, 0, 1, 2)),
        callback=chance.random() < 0.5,  # noqa: PLR2004 - half of them
    )


def make_service_run(chance: random.Random, units: Sequence[str], *, step_seconds: float = STEP_SECONDS) -> ServiceRun:
    step = KillPoint(
        unit=chance.choice(units),
        after=chance.random() < 0.5,  # noqa: PLR2004 - as often before as after
        nth=chance.choice((1, 1, 2, 3, 5)),
        stops=chance.random() < 0.2,  # noqa: PLR2004 - seldom: kills find most faults
    )
    if chance.random() < 0.25:  # noqa: PLR2004 - a quarter of the service runs end at no step
        return ServiceRun(step=None, lifetime_seconds=chance.uniform(0.4, 1.6))
    return ServiceRun(step=step, lifetime_seconds=step_seconds)


def make_fault(chance: random.Random) -> FaultInjection:
    target = chance.choice(ONE_NODE_TARGETS)
    kills = target is not Target.SERVICE and chance.random() < 0.6  # noqa: PLR2004 - service runs end by themselves
    return FaultInjection(
        target=target,
        damage=Damage.KILL if kills else Damage.FREEZE,
        at_seconds=chance.uniform(0.2, RUN_SECONDS),
        freeze_seconds=chance.uniform(0.05, 0.6),
    )


def make_cluster_fault(chance: random.Random, nodes: int) -> FaultInjection:
    target = chance.choice(CLUSTER_TARGETS)
    damage = chance.choice(NETWORK_DAMAGES if target is Target.NETWORK else (Damage.KILL, Damage.FREEZE))
    if target is Target.DATABASE:
        damage = Damage.KILL
    is_long = target in {Target.SERVICE, Target.NETWORK} and damage is Damage.FREEZE and chance.random() < 0.3  # noqa: PLR2004
    return FaultInjection(
        target=target,
        damage=damage,
        at_seconds=chance.uniform(0.5, CLUSTER_RUN_SECONDS),
        freeze_seconds=LONG_FREEZE_SECONDS if is_long else chance.uniform(0.05, 2.0),
        node=chance.randrange(nodes),
    )
