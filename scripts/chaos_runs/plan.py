"""What a seed decides: which calls are started when, and who is killed or stopped at which step or moment. Pure."""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """Upstream and tool of a call; each is run by another driver."""

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
"""The durable steps of a call's way, by the beginning of the name of each unit of work."""

CALLS: Final = 24
RUN_SECONDS: Final = 2.0
"""All calls are started within it; with starting again after each kill, a run takes a few seconds."""
STEP_SECONDS: Final = 2.0
"""A life that has not come to its step by then never will, and ends without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillPoint:
    """A moment in the service's life: just before, or just after, a unit of work is done for the n-th time."""

    unit: str
    after: bool
    nth: int
    stops: bool
    """Whether the service is stopped there, or killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRun:
    """One life of the service: it ends at its step, or else after so many seconds."""

    step: KillPoint | None
    downtime_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultInjection:
    """From outside: SIGSTOP and, later, SIGCONT; or `kill -9`, and a new start later."""

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
    """How long whoever is asked thinks about it."""
    cancel_seconds: float | None
    """After it was acknowledged."""
    repeats: int
    """How often the start is sent again with its key, as by a client that lost the answer."""
    callback: bool
    """Whether it has a webhook of its own, beside the one that hears all."""


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
        stops=chance.random() < 0.2,  # noqa: PLR2004 - seldom: most that is found is found by death
    )
    if chance.random() < 0.25:  # noqa: PLR2004 - a quarter of the lives end at no step
        return ServiceRun(step=None, downtime_seconds=chance.uniform(0.4, 1.6))
    return ServiceRun(step=step, downtime_seconds=STEP_SECONDS)


def make_fault(chance: random.Random) -> FaultInjection:
    target = chance.choice(list(Target))
    return FaultInjection(
        target=target,
        kills=target is not Target.SERVICE and chance.random() < 0.6,  # noqa: PLR2004 - the service's lives end anyway
        at_seconds=chance.uniform(0.2, RUN_SECONDS),
        freeze_seconds=chance.uniform(0.05, 0.6),
    )
