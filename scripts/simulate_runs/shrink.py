"""Makes a failing plan smaller: parts are left out or made simpler as long as the run still breaks the same promise."""

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, replace
from typing import Any, Final

from scripts.simulate_runs.plan import Plan, PlannedCall, PlannedWebhook

RUNS_MAX: Final = 400
"""Runs that the shrinking of one plan may take: some seconds."""
_LISTS: Final = ("faults", "actions", "logins", "publishers", "readers", "webhooks", "calls", "receivers")


def shrink_plan(plan: Plan, still_fails: Callable[[Plan], bool], *, runs_max: int = RUNS_MAX) -> Plan:
    """The smallest plan found. `still_fails` runs a plan, and says whether the same promise is broken."""
    runs = 0
    has_shrunk = True
    while has_shrunk:
        has_shrunk = False
        for smaller in _make_smaller(plan):
            runs += 1
            if runs > runs_max:
                return plan
            if still_fails(smaller):
                plan, has_shrunk = smaller, True
                break
    return plan


def _make_smaller(plan: Plan) -> Iterator[Plan]:
    yield from _leave_out_parts(plan)
    yield from _simplify_parts(plan)
    simplest: dict[str, Any] = {"reruns": 0.0, "lost_notifications": 0.0, "open_calls_max": 100, "wall_offsets": ()}
    for name, value in simplest.items():
        if getattr(plan, name) != value:
            yield replace(plan, **{name: value})
    if plan.nodes > 1 and all(fault.node < plan.nodes - 1 for fault in plan.faults):
        yield replace(plan, nodes=plan.nodes - 1)


def _leave_out_parts(plan: Plan) -> Iterator[Plan]:
    for name in _LISTS:
        parts = getattr(plan, name)
        if len(parts) > 2:  # noqa: PLR2004 - halves of two are single parts
            half = len(parts) // 2
            yield from _valid(replace(plan, **{name: parts[:half]}))
            yield from _valid(replace(plan, **{name: parts[half:]}))
        for index in range(len(parts)):
            yield from _valid(replace(plan, **{name: parts[:index] + parts[index + 1 :]}))


def _valid(plan: Plan) -> Iterator[Plan]:
    """The plan, if every receiver that it names exists."""
    names = {each.name for each in plan.receivers}
    named = {webhook.receiver for webhook in plan.webhooks} | {call.callback for call in plan.calls if call.callback}
    if named <= names:
        yield plan


def _simplify_parts(plan: Plan) -> Iterator[Plan]:
    for name in ("calls", "webhooks"):
        parts = getattr(plan, name)
        for index, part in enumerate(parts):
            for simpler in _simplify_part(part):
                yield replace(plan, **{name: (*parts[:index], simpler, *parts[index + 1 :])})
    for index, receiver in enumerate(plan.receivers):
        if receiver.troubles:
            calm = replace(receiver, troubles=receiver.troubles[1:])
            yield replace(plan, receivers=(*plan.receivers[:index], calm, *plan.receivers[index + 1 :]))


def _simplify_part(part: PlannedCall | PlannedWebhook) -> Iterator[PlannedCall | PlannedWebhook]:
    """The part with one of its optional members as it is by default."""
    for member in fields(part):
        default: Any = member.default
        if default is not MISSING and getattr(part, member.name) != default:
            yield replace(part, **{member.name: default})
