"""The plan of a seed: when each call starts, and at which step or moment each process is killed or stopped. Pure."""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


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
    MODERN = "modern"
    LEGACY = "legacy"
    STDIO = "stdio"


UNITS: Final = (
    "Calls.start_call.<locals>",
    "Calls.cancel_call.<locals>",
    "Runner._lease_queued_calls",
    "LeasedCall._write_dispatched",
    "LeasedCall._update_call.<locals>",
    "LeasedCall._record_progress.<locals>",
    "LeasedCall.park_call.<locals>",
    "InputAnswers.answer_input.<locals>",
    "CompletionBatcher._record_completions",
    "DeliveryLeasing._lease_due",
    "AttemptRecorder.record_attempts",
    "Janitor._recover_calls_of_others",
)
"""The durable steps of a call: prefixes of the qualified names of units of work."""

CALLS: Final = 24
RUN_SECONDS: Final = 2.0
"""All calls start within this time. With the restarts after kills, a run takes a few seconds."""
STEP_SECONDS: Final = 2.0
"""A service run that has not reached its step by then ends without it."""


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
    """A signal from outside: SIGSTOP and later SIGCONT, or SIGKILL and later a restart."""

    target: Target
    kills: bool
    at_seconds: float
    freeze_seconds: float


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
    calls: tuple[PlannedCall, ...]
    service_runs: tuple[ServiceRun, ...]
    faults: tuple[FaultInjection, ...]


def make_plan(seed: int, *, calls: int = CALLS) -> Plan:
    chance = random.Random(seed)  # noqa: S311 - a seed replays its plan
    return Plan(
        seed=seed,
        calls=tuple(_call(chance, number) for number in range(calls)),
        service_runs=tuple(make_service_run(chance) for _ in range(chance.randint(2, 4))),
        faults=tuple(make_fault(chance) for _ in range(chance.randint(1, 4))),
    )


def _call(chance: random.Random, number: int) -> PlannedCall:
    return PlannedCall(
        key=f"work-{number}",
        kind=chance.choice(list(Kind)),
        unsafe=chance.random() < 0.7,  # noqa: PLR2004 - most tools are
        at_seconds=chance.uniform(0, RUN_SECONDS),
        work_seconds=chance.uniform(0.0, 0.5),
        answer_seconds=chance.uniform(0.0, 0.5),
        cancel_seconds=chance.uniform(0.0, 0.5) if chance.random() < 0.15 else None,  # noqa: PLR2004 - some are
        repeats=chance.choice((0, 0, 1, 2)),
        callback=chance.random() < 0.5,  # noqa: PLR2004 - half of them
    )


def make_service_run(chance: random.Random) -> ServiceRun:
    step = KillPoint(
        unit=chance.choice(UNITS),
        after=chance.random() < 0.5,  # noqa: PLR2004 - as often before as after
        nth=chance.choice((1, 1, 2, 3, 5)),
        stops=chance.random() < 0.2,  # noqa: PLR2004 - seldom: kills find most faults
    )
    if chance.random() < 0.25:  # noqa: PLR2004 - a quarter of the service runs end at no step
        return ServiceRun(step=None, lifetime_seconds=chance.uniform(0.4, 1.6))
    return ServiceRun(step=step, lifetime_seconds=STEP_SECONDS)


def make_fault(chance: random.Random) -> FaultInjection:
    target = chance.choice(list(Target))
    return FaultInjection(
        target=target,
        kills=target is not Target.SERVICE and chance.random() < 0.6,  # noqa: PLR2004 - service runs end by themselves
        at_seconds=chance.uniform(0.2, RUN_SECONDS),
        freeze_seconds=chance.uniform(0.05, 0.6),
    )
