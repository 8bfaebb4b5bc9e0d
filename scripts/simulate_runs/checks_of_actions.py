"""What operators and owners were promised: a pause, a drain, a cancellation, a redelivery, a new secret, an erasure."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from scripts.simulate_runs.clock import STARTED_AT
from scripts.simulate_runs.history import ObservedAction
from scripts.simulate_runs.plan import ERASURES, ActionKind, PlannedCall
from scripts.simulate_runs.records import StoredCall
from scripts.simulate_runs.rules import CLOCK_ERROR_MILLISECONDS, Rule, Violation
from scripts.simulate_runs.run import SimulationResult

DRAIN_SECONDS: Final = 3.0
"""A node knows a drain within a second. If nothing disturbs it, a start that was checked earlier is written soon."""
SIGNING_SECONDS: Final = 40.0
"""Longer than an attempt takes. It may have been signed before the rotation was acknowledged."""


def find_action_violations(result: SimulationResult) -> Iterator[Violation]:
    yield from (Violation(Rule.CROSSED_CONTROLS, each) for each in result.history.crossed_controls)
    for action in result.history.actions:
        if action.acknowledged_at is None:
            continue
        match action.planned.kind:
            case ActionKind.DRAIN:
                yield from _check_drain(result, action)
            case ActionKind.CANCEL_SESSION:
                yield from _check_cancellation(result, action)
            case ActionKind.REDELIVER:
                yield from _check_redelivery(result, action)
            case ActionKind.ROTATE_SECRET:
                yield from _check_secrets(result, action)
            case _:
                pass
        if action.planned.kind in ERASURES:
            yield from _check_erasure(result, action)


def _check_drain(result: SimulationResult, action: ObservedAction) -> Iterator[Violation]:
    if result.history.disturbances or action.acknowledged_at is None:
        return
    begins = _to_milliseconds(action.acknowledged_at + DRAIN_SECONDS)
    ends = _to_milliseconds(action.ended_at if action.ended_at is not None else action.acknowledged_at)
    for call in result.records.calls:
        if call.upstream == action.planned.upstream and begins < call.created_at < ends - CLOCK_ERROR_MILLISECONDS:
            yield Violation(Rule.CROSSED_CONTROLS, f"{call.id} was accepted while {call.upstream} was drained")


def _check_cancellation(result: SimulationResult, action: ObservedAction) -> Iterator[Violation]:
    """Every call that was acknowledged before the request has ended, or is cancelled."""
    ended_by = _to_milliseconds(action.acknowledged_at or 0.0) + CLOCK_ERROR_MILLISECONDS
    for planned, call in _find_acknowledged(result, action):
        matches = planned.principal == action.planned.principal and planned.session == action.planned.session
        if matches and not call.cancel_requested and (call.finished_at or ended_by + 1) > ended_by:
            yield Violation(
                Rule.IGNORED_ACTIONS, f"the cancellation of {action.planned.session} left {call.id} {call.outcome}"
            )


def _check_redelivery(result: SimulationResult, action: ObservedAction) -> Iterator[Violation]:
    generations = Counter(
        (each.webhook_id, each.event_id)
        for each in result.records.deliveries
        if each.principal == action.planned.principal
    )
    repeated = sum(count - 1 for count in generations.values())
    if repeated < action.count and not result.history.has_erasures:
        yield Violation(
            Rule.IGNORED_ACTIONS, f"a redelivery reports {action.count} deliveries, and {repeated} were repeated"
        )


def _check_secrets(result: SimulationResult, action: ObservedAction) -> Iterator[Violation]:
    first_requested_at = min(each.requested_at for each in result.history.actions if each.target_id == action.target_id)
    for callback in result.history.callbacks:
        if callback.webhook_id != action.target_id:
            continue
        if callback.is_verified_anew and callback.at_seconds < first_requested_at:
            yield Violation(Rule.FALSE_CALLBACKS, f"{callback.message_id} was signed with a secret of the future")
        if not callback.is_verified_anew and callback.at_seconds > (action.acknowledged_at or 0.0) + SIGNING_SECONDS:
            yield Violation(Rule.FALSE_CALLBACKS, f"{callback.message_id} is not signed with the rotated secret")


# -- erasures --


def _check_erasure(result: SimulationResult, action: ObservedAction) -> Iterator[Violation]:
    erasure = next((each for each in result.records.erasures if each.id == action.target_id), None)
    if erasure is None or erasure.finished_at is None:
        yield Violation(Rule.LEFT_DATA, f"the erasure {action.target_id} was acknowledged, and is {erasure}")
        return
    same_owner = [each for each in result.records.erasures if each.principal == erasure.principal]
    finished_at = min(each.finished_at or erasure.finished_at for each in same_owner)
    for planned in result.plan.calls:
        seen = result.history.calls.get(planned.key)
        if seen is None or seen.acknowledged_at is None or not action.planned.erases(planned):
            continue
        if seen.acknowledged_at >= action.requested_at:
            continue
        call_id = seen.call_ids[0]
        stub_at = min(
            finished_at,
            max(_to_milliseconds(action.requested_at), result.records.erased_calls.get(call_id, finished_at)),
        )
        yield from _check_later_deliveries(result, call_id, stub_at, erasure.finished_at)
        if left := _find_left(result, planned, call_id):
            yield Violation(Rule.LEFT_DATA, f"{planned.key} was erased as {action.planned.kind}, and is in {left}")


def _check_later_deliveries(
    result: SimulationResult, call_id: str, stub_at: int, finished_at: int
) -> Iterator[Violation]:
    """A webhook that is registered later receives the stubs of the call's events, and nothing else of it.

    An earlier erasure of the same owner may have made them.
    """
    for delivery in result.records.deliveries:
        if delivery.call_id == call_id and delivery.created_at < stub_at - CLOCK_ERROR_MILLISECONDS:
            yield Violation(Rule.LEFT_DATA, f"{call_id} was erased, and {delivery} is left")
    for callback in result.history.callbacks:
        data = callback.body.get("data", {})
        is_later = callback.at_seconds > (finished_at - STARTED_AT) / 1000 + SIGNING_SECONDS
        if data.get("call_id") == call_id and is_later and not data.get("erased"):
            yield Violation(Rule.LEFT_DATA, f"{call_id} was erased, and {callback.message_id} is sent as it was")


def _find_left(result: SimulationResult, planned: PlannedCall, call_id: str) -> list[str]:
    """Where the call still is: its row, rows that refer to it, and values that contain its name."""
    traces = [*result.records.traces.get(call_id, ())]
    if all(each.correlation_id != planned.key or each.id == call_id for each in result.records.calls):
        traces += result.records.traces.get(planned.key, ())  # no later call has this name
    return sorted(set(traces))


def _find_acknowledged(result: SimulationResult, action: ObservedAction) -> Iterator[tuple[PlannedCall, StoredCall]]:
    """The calls that were acknowledged before the first request of the action, and still exist."""
    calls = {call.id: call for call in result.records.calls}
    for planned in result.plan.calls:
        seen = result.history.calls.get(planned.key)
        if seen is None or seen.acknowledged_at is None or seen.acknowledged_at >= action.requested_at:
            continue
        if (call := calls.get(seen.call_ids[0])) is not None:
            yield planned, call


def _to_milliseconds(at_seconds: float) -> int:
    return STARTED_AT + int(at_seconds * 1000)
