"""Draws a plan from a seed. Pure: the same seed, size and number of nodes give the same plan."""

from dataclasses import dataclass, replace
from random import Random
from typing import Final, TypeVar

from ringback.domain.call import RerunPolicy
from scripts.simulate_runs.plan import (
    HAPPENING_SECONDS,
    ActionKind,
    FaultKind,
    Plan,
    PlannedAction,
    PlannedCall,
    PlannedFault,
    PlannedLogin,
    PlannedPublisher,
    PlannedReader,
    PlannedReceiver,
    PlannedTrouble,
    PlannedWebhook,
    ReaderKind,
    ReceiverTrouble,
    ToolEnd,
    UpstreamKind,
)

T = TypeVar("T")

PRINCIPALS: Final = ("alice", "bob")
OUTCOMES: Final = ("result", "tool_error", "upstream_error", "rejected", "timed_out", "unknown", "cancelled")
SHORT_TIMEOUT_SECONDS: Final = 25.0
LONG_TIMEOUT_SECONDS: Final = 500.0
"""Long after the last fault and its consequences, and still a bound for calls without an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSize:
    """The largest counts of a plan."""

    calls: int = 4
    webhooks: int = 2
    faults: int = 4
    actors: float = 1.0
    """How often others act beside the clients of the calls (operators, subscribers, readers, publishers), as a fraction of how
    often they do in a medium plan."""


TINY: Final = PlanSize(calls=1, webhooks=1, faults=1, actors=0.2)
SMALL: Final = PlanSize(calls=2, webhooks=1, faults=2)
MEDIUM: Final = PlanSize()
LARGE: Final = PlanSize(calls=12, webhooks=5, faults=10)
SIZES: Final = {"tiny": TINY, "small": SMALL, "medium": MEDIUM, "large": LARGE}


def make_plan(seed: int, *, nodes: int = 2, size: PlanSize = MEDIUM) -> Plan:
    draw = _Draw(Random(f"plan {seed}"))  # noqa: S311 - a seed replays its plan
    receivers = tuple(draw.receiver(number) for number in range(draw.count(1, 2)))
    calls = tuple(draw.call(number, receivers, nodes) for number in range(draw.count(1, size.calls)))
    if draw.happens(0.25):
        calls = draw.burst(calls)
    plan = Plan(
        seed=seed,
        nodes=nodes,
        receivers=receivers,
        calls=calls,
        webhooks=tuple(
            draw.webhook(number, receivers) for number in range(draw.count(draw.one_of(0, 1, 1), size.webhooks))
        ),
        faults=tuple(draw.fault(nodes, calls) for _ in range(draw.count(0, size.faults))),
        followed=draw.one_of(PRINCIPALS[:1], PRINCIPALS) if draw.happens(0.4 * size.actors) else (),
        reruns=draw.one_of(0.0, 0.0, 0.05, 0.2),
        lost_notifications=draw.one_of(0.0, 0.0, 0.1, 1.0),
        open_calls_max=draw.one_of(100, 100, 1, 2),
        wall_offsets=tuple(draw.chance.uniform(-120.0, 120.0) for _ in range(nodes)),
        pauses=draw.one_of(0.0, 0.0, 0.3, 1.0),
        capacity=draw.one_of(4, 4, 1, 2),
        resealed_at_seconds=draw.moment() if draw.happens(0.1 * size.actors) else None,
    )
    if draw.happens(0.5 * size.actors):
        plan = draw.with_operators(plan)
    if draw.happens(0.2 * size.actors):
        plan = draw.with_publishers(plan)
    return draw.with_subscriptions(plan) if draw.happens(0.3 * size.actors) else plan


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

    def principal(self) -> str:
        """Mostly the same, so that calls, webhooks and quotas meet."""
        return PRINCIPALS[0] if self.happens(0.75) else PRINCIPALS[1]

    def moment(self) -> float:
        return round(self.chance.uniform(0.0, HAPPENING_SECONDS), 3)

    def call(self, number: int, receivers: tuple[PlannedReceiver, ...], nodes: int) -> PlannedCall:
        upstream = self.one_of(*UpstreamKind)
        is_reported = upstream is UpstreamKind.REPORTED
        end = ToolEnd.RESULT if is_reported or self.happens(0.7) else self.one_of(*ToolEnd)
        is_short = end is ToolEnd.SILENCE or self.happens(0.1)
        return PlannedCall(
            key=f"work-{number}",
            principal=self.principal(),
            place=self.count(0, nodes - 1),
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
            rerun_policy=RerunPolicy.NEVER if self.happens(0.6) else RerunPolicy.ALWAYS,
            wait_seconds=self.one_of(0.0, 0.0, 4.0),
            start_delay_seconds=0.0 if is_reported or self.happens(0.85) else round(self.chance.uniform(0.0, 30.0), 3),
            session=self.one_of(None, "session-1", "session-1"),
            callback=self.one_of(*receivers).name if self.happens(0.4) else None,
            progress_steps=self.one_of(0, 0, 0, 2),
        )

    def burst(self, calls: tuple[PlannedCall, ...]) -> tuple[PlannedCall, ...]:
        """The calls of one session at almost one moment, so that their events and deliveries meet."""
        moment = self.moment()
        return tuple(
            replace(
                call,
                principal=PRINCIPALS[0],
                session="session-1",
                at_seconds=round(moment + self.chance.uniform(0.0, 0.3), 3),
                work_seconds=round(min(call.work_seconds, self.chance.uniform(0.0, 3.0)), 3),
            )
            for call in calls
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
            principal=self.principal(),
            receiver=self.one_of(*receivers).name,
            at_seconds=at_seconds,
            ordered=self.happens(0.4),
            is_verified=self.happens(0.25),
            upstream=self.one_of(*UpstreamKind) if self.happens(0.15) else None,
            outcomes=tuple(self.chance.sample(OUTCOMES, 3)) if self.happens(0.15) else None,
            hears_progress=self.happens(0.3),
            hears_past=self.happens(0.2),
            removed_at_seconds=at_seconds + self.moment() if self.happens(0.1) else None,
        )

    def fault(self, nodes: int, calls: tuple[PlannedCall, ...]) -> PlannedFault:
        kind = self.one_of(
            *FaultKind, FaultKind.KILL, FaultKind.KILL, FaultKind.FREEZE, FaultKind.FREEZE, FaultKind.FREEZE
        )
        at_seconds, place = self.fault_moment(calls)
        if place is None or self.happens(0.2):
            place = self.count(0, nodes - 1)
        return PlannedFault(
            kind=kind,
            node=-1 if kind is FaultKind.PARTITION and self.happens(0.3) else place,
            upstream=self.one_of(UpstreamKind.TASK, UpstreamKind.ROUNDS, UpstreamKind.PLAIN),
            at_seconds=at_seconds,
            after_callbacks=self.count(1, 70),
            lasts_seconds=round(self.fault_duration(), 3),
            forgets_tasks=self.happens(0.3),
        )

    def fault_moment(self, calls: tuple[PlannedCall, ...]) -> tuple[float, int | None]:
        """Mostly while a call starts, runs or ends, at its node: between the steps of an idle node there is little to break."""
        if self.happens(0.25):
            return self.moment(), None
        call = self.one_of(*calls)
        phase = self.one_of(0.0, 0.0, self.chance.random(), 1.0)
        return round(call.at_seconds + phase * call.work_seconds + self.chance.uniform(0.0, 0.1), 3), call.place

    def with_operators(self, plan: Plan) -> Plan:
        """The plan with what operators and owners do, too."""
        actions = tuple(self.action(plan) for _ in range(self.count(1, 2)))
        logins: tuple[PlannedLogin, ...] = ()
        if self.happens(0.4):
            logins = (self.login(plan),)
        is_closed = [each for each in actions if each.kind in {ActionKind.PAUSE, ActionKind.DRAIN}]
        if len({each.upstream for each in is_closed}) < len(is_closed):
            actions = actions[:1]  # one operator would end what the other one has begun
        return replace(plan, actions=actions, logins=logins)

    def with_publishers(self, plan: Plan) -> Plan:
        """The plan with clients that publish events, and others that read the log."""
        publishers = tuple(self.publisher(number) for number in range(self.count(1, 2)))
        principals = [each.principal for each in (*publishers, *plan.calls)]
        readers = tuple(
            PlannedReader(kind=kind, principal=self.one_of(*principals), at_seconds=self.one_of(0.0, self.moment()))
            for kind in self.one_of((ReaderKind.POLL,), (ReaderKind.STREAM,), tuple(ReaderKind))
        )
        webhooks = tuple(replace(each, hears_published=self.happens(0.5)) for each in plan.webhooks)
        plan = replace(plan, publishers=publishers, readers=readers, webhooks=webhooks)
        return self.with_lost_listener(plan) if self.happens(0.3) else plan

    def with_lost_listener(self, plan: Plan) -> Plan:
        """The plan with one fault, which may only make others wait: a node without a listener while events are published."""
        moment = min(each.at_seconds for each in plan.publishers)
        fault = PlannedFault(
            kind=FaultKind.LOSE_LISTENER,
            node=self.count(0, plan.nodes - 1),
            at_seconds=round(max(0.0, moment - self.chance.uniform(0.0, 5.0)), 3),
            lasts_seconds=round(self.chance.uniform(2.0, 12.0), 3),
        )
        return replace(plan, faults=(fault,), lost_notifications=0.0, resealed_at_seconds=None)

    def publisher(self, number: int) -> PlannedPublisher:
        events = self.count(1, 5)
        return PlannedPublisher(
            name=f"publisher-{number}",
            principal=self.principal(),
            at_seconds=self.moment(),
            events=events,
            pause_seconds=self.one_of(0.0, 0.1, 2.0),
            repeats=self.happens(0.4),
            rotates_after=self.count(0, events - 1) if self.happens(0.4) else None,
        )

    def with_subscriptions(self, plan: Plan) -> Plan:
        """The plan with MCP clients in place of its webhooks, or beside them."""
        made = [self.webhook(number, plan.receivers) for number in range(self.count(1, 2))]
        subscriptions = tuple(
            replace(
                each,
                name=each.name.replace("webhook", "subscription"),
                ordered=False,
                is_verified=False,
                outcomes=None,
                hears_progress=False,
                upstream=_with_sessions(each.upstream) if each.upstream is not None else None,
                refresh_seconds=self.one_of(5.0, 12.0, 35.0),
            )
            for each in made
        )
        return replace(plan, webhooks=(*plan.webhooks, *subscriptions))

    def action(self, plan: Plan) -> PlannedAction:
        call = self.one_of(*plan.calls)
        own = [each.name for each in plan.webhooks if each.principal == call.principal and each.refresh_seconds is None]
        kind = self.one_of(*ActionKind)
        phase = self.one_of(0.0, self.chance.random(), 1.0)
        at_seconds = call.at_seconds + phase * call.work_seconds
        at_seconds += self.one_of(self.chance.uniform(-0.5, 0.5), self.chance.uniform(0.02, 0.1))  # or right afterwards
        if kind in {ActionKind.REDELIVER, ActionKind.ROTATE_SECRET}:
            at_seconds += self.chance.uniform(0.0, 20.0)
        if kind in {ActionKind.PAUSE, ActionKind.DRAIN}:
            at_seconds = call.at_seconds - self.chance.uniform(0.0, 8.0)
        return PlannedAction(
            kind=ActionKind.REDELIVER if kind is ActionKind.ROTATE_SECRET and not own else kind,
            principal=call.principal,
            at_seconds=round(max(0.0, at_seconds), 3),
            upstream=_with_sessions(call.upstream),
            lasts_seconds=round(self.chance.uniform(0.0, 40.0), 3),
            session=call.session or "session-1",
            key=call.key,
            webhook=own[0] if own else None,
        )

    def login(self, plan: Plan) -> PlannedLogin:
        at_seconds = round(self.chance.uniform(0.0, 40.0), 3)
        return PlannedLogin(
            upstream=_with_sessions(self.one_of(*plan.calls).upstream),
            at_seconds=at_seconds,
            is_shared=self.happens(0.5),
            revoked_at_seconds=round(at_seconds + self.chance.uniform(0.0, 30.0), 3) if self.happens(0.5) else None,
            login_seconds=round(self.chance.uniform(0.0, 20.0), 3),
        )

    def fault_duration(self) -> float:
        """Short, long, or around the moment when a lease has run out and another node works on what it was for."""
        kind = self.chance.random()
        if kind < 0.3:  # noqa: PLR2004 - of all faults
            return self.chance.uniform(0.0, 10.0)
        return self.chance.uniform(40.0, 80.0) if kind < 0.8 else self.chance.uniform(0.0, 120.0)  # noqa: PLR2004


def _with_sessions(upstream: UpstreamKind) -> UpstreamKind:
    """The upstream, or another one if it has none: reported calls run elsewhere."""
    return UpstreamKind.TASK if upstream is UpstreamKind.REPORTED else upstream
