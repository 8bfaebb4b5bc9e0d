"""Draws a plan from a seed. Pure: the same seed, size and number of nodes give the same plan."""

from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

from ringback.domain.call import RerunPolicy
from scripts.simulate_runs.plan import (
    HAPPENING_SECONDS,
    FaultKind,
    Plan,
    PlannedCall,
    PlannedFault,
    PlannedReceiver,
    PlannedTrouble,
    PlannedWebhook,
    ReceiverTrouble,
    ToolEnd,
    UpstreamKind,
)

T = TypeVar("T")

PRINCIPALS: Final = ("alice", "bob")
OUTCOMES: Final = ("result", "tool_error", "upstream_error", "rejected", "timed_out", "unknown", "cancelled")
SHORT_TIMEOUT_SECONDS: Final = 25.0
LONG_TIMEOUT_SECONDS: Final = 500.0
"""Long after the last fault and its consequences, and still a bound for calls that nobody ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSize:
    """The largest counts of a plan."""

    calls: int = 4
    webhooks: int = 2
    faults: int = 4


SMALL: Final = PlanSize(calls=2, webhooks=1, faults=2)
MEDIUM: Final = PlanSize()
LARGE: Final = PlanSize(calls=12, webhooks=5, faults=10)
SIZES: Final = {"small": SMALL, "medium": MEDIUM, "large": LARGE}


def make_plan(seed: int, *, nodes: int = 2, size: PlanSize = MEDIUM) -> Plan:
    draw = _Draw(Random(f"plan {seed}"))  # noqa: S311 - a seed replays its plan
    receivers = tuple(draw.receiver(number) for number in range(draw.count(1, 2)))
    calls = tuple(draw.call(number, receivers) for number in range(draw.count(1, size.calls)))
    return Plan(
        seed=seed,
        nodes=nodes,
        receivers=receivers,
        calls=calls,
        webhooks=tuple(draw.webhook(number, receivers) for number in range(draw.count(0, size.webhooks))),
        faults=tuple(draw.fault(nodes, calls) for _ in range(draw.count(0, size.faults))),
        followed=draw.one_of((), (), PRINCIPALS[:1], PRINCIPALS),
        reruns=draw.one_of(0.0, 0.0, 0.05, 0.2),
        lost_notifications=draw.one_of(0.0, 0.0, 0.1, 1.0),
        open_calls_max=draw.one_of(100, 100, 100, 2),
        wall_offsets=tuple(draw.chance.uniform(-120.0, 120.0) for _ in range(nodes)),
    )


class _Draw:
    """Draws the parts of a plan."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance

    def count(self, least: int, most: int) -> int:
        return self.chance.randint(least, most)

    def one_of(self, *choices: T) -> T:
        return self.chance.choice(choices)

    def happens(self, fraction: float) -> bool:
        return self.chance.random() < fraction

    def moment(self) -> float:
        return round(self.chance.uniform(0.0, HAPPENING_SECONDS), 3)

    def call(self, number: int, receivers: tuple[PlannedReceiver, ...]) -> PlannedCall:
        upstream = self.one_of(*UpstreamKind)
        is_reported = upstream is UpstreamKind.REPORTED
        end = ToolEnd.RESULT if is_reported or self.happens(0.7) else self.one_of(*ToolEnd)
        is_short = end is ToolEnd.SILENCE or self.happens(0.1)
        return PlannedCall(
            key=f"work-{number}",
            principal=self.one_of(*PRINCIPALS),
            upstream=upstream,
            at_seconds=self.moment(),
            work_seconds=round(self.chance.choice((0.0, 0.5, 3.0, 20.0, 70.0)) * self.chance.random(), 3),
            end=end,
            asks=upstream in {UpstreamKind.TASK, UpstreamKind.ROUNDS} and self.happens(0.25),
            answer_seconds=round(self.chance.uniform(0.0, 10.0), 3),
            forgets_key=not is_reported and self.happens(0.1),
            repeats=self.one_of(0, 0, 1, 2),
            cancel_after_seconds=None if is_reported or self.happens(0.8) else round(self.chance.uniform(0.0, 10.0), 3),
            cancels_at_once=self.happens(0.3),
            timeout_seconds=SHORT_TIMEOUT_SECONDS if is_short else LONG_TIMEOUT_SECONDS,
            rerun_policy=RerunPolicy.NEVER if self.happens(0.7) else RerunPolicy.ALWAYS,
            wait_seconds=self.one_of(0.0, 0.0, 4.0),
            start_delay_seconds=0.0 if is_reported or self.happens(0.85) else round(self.chance.uniform(0.0, 30.0), 3),
            session=self.one_of(None, "session-1", "session-2"),
            callback=self.one_of(*receivers).name if self.happens(0.4) else None,
            progress_steps=self.one_of(0, 0, 0, 2),
        )

    def receiver(self, number: int) -> PlannedReceiver:
        troubles = tuple(self.trouble() for _ in range(self.one_of(0, 0, 1, 2)))
        return PlannedReceiver(
            name=f"receiver-{number}", troubles=troubles, latency_seconds=self.one_of(0.01, 0.05, 2.0)
        )

    def trouble(self) -> PlannedTrouble:
        begins_at = self.moment()
        kinds = [kind for kind in ReceiverTrouble if kind is not ReceiverTrouble.GONE or self.happens(0.2)]
        return PlannedTrouble(
            trouble=self.one_of(*kinds),
            from_seconds=begins_at,
            until_seconds=begins_at + round(self.chance.uniform(1.0, 40.0), 3),
        )

    def webhook(self, number: int, receivers: tuple[PlannedReceiver, ...]) -> PlannedWebhook:
        at_seconds = 0.0 if self.happens(0.7) else self.moment()
        return PlannedWebhook(
            name=f"webhook-{number}",
            principal=self.one_of(*PRINCIPALS),
            receiver=self.one_of(*receivers).name,
            at_seconds=at_seconds,
            ordered=self.happens(0.3),
            is_verified=self.happens(0.25),
            upstream=self.one_of(*UpstreamKind) if self.happens(0.15) else None,
            outcomes=tuple(self.chance.sample(OUTCOMES, 3)) if self.happens(0.15) else None,
            hears_progress=self.happens(0.3),
            removed_at_seconds=at_seconds + self.moment() if self.happens(0.1) else None,
        )

    def fault(self, nodes: int, calls: tuple[PlannedCall, ...]) -> PlannedFault:
        kind = self.one_of(*FaultKind, FaultKind.KILL, FaultKind.KILL, FaultKind.FREEZE, FaultKind.FREEZE)
        return PlannedFault(
            kind=kind,
            node=-1 if kind is FaultKind.PARTITION and self.happens(0.3) else self.count(0, nodes - 1),
            upstream=self.one_of(UpstreamKind.TASK, UpstreamKind.ROUNDS, UpstreamKind.PLAIN),
            at_seconds=self.fault_moment(calls),
            after_callbacks=self.count(1, 70),
            lasts_seconds=round(self.one_of(1.0, 10.0, 60.0, 120.0) * self.chance.random(), 3),
            forgets_tasks=self.happens(0.3),
        )

    def fault_moment(self, calls: tuple[PlannedCall, ...]) -> float:
        """Mostly while a call starts, runs or ends: between the steps of an idle node there is little to break."""
        if self.happens(0.25):
            return self.moment()
        call = self.one_of(*calls)
        phase = self.one_of(0.0, 0.0, self.chance.random(), 1.0)
        return round(call.at_seconds + phase * call.work_seconds + self.chance.uniform(0.0, 0.1), 3)
