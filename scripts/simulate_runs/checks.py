"""The promises of the product, checked after a run: what clients, upstreams and receivers saw, against what the store holds.

Pure. The checks have a model of their own: from the plan and the acknowledgements they derive what must be in the store.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from ringback.domain.call import FINAL_CALL_STATUSES, RerunPolicy
from scripts.simulate_runs.checks_of_actions import find_action_violations
from scripts.simulate_runs.checks_of_deliveries import find_delivery_violations
from scripts.simulate_runs.checks_of_logs import find_log_violations
from scripts.simulate_runs.clock import STARTED_AT
from scripts.simulate_runs.history import CallObservations
from scripts.simulate_runs.plan import FaultKind, PlannedCall, ToolEnd, UpstreamKind
from scripts.simulate_runs.records import StoredCall
from scripts.simulate_runs.rules import CLOCK_ERROR_MILLISECONDS, Rule, Violation
from scripts.simulate_runs.run import SimulationResult

_OUTCOMES: Final = {
    ToolEnd.RESULT: "result",
    ToolEnd.TOOL_ERROR: "tool_error",
    ToolEnd.JSONRPC_ERROR: "upstream_error",
    ToolEnd.NONSENSE: "upstream_error",
    ToolEnd.SILENCE: "timed_out",
}


LATE_AFTER_SECONDS: Final = 300.0
"""The last fault of a plan, the longest work and all leases together take less."""


def find_violations(result: SimulationResult) -> list[Violation]:
    return [*_find_all(result)]


def _find_all(result: SimulationResult) -> Iterator[Violation]:
    for planned in result.plan.calls:
        seen = result.history.calls.get(planned.key)
        if seen is not None:
            yield from _check_call(result, planned, seen)
    yield from find_log_violations(result)
    yield from _check_end_events(result)
    yield from find_delivery_violations(result)
    yield from find_action_violations(result)
    for rule, descriptions in (
        (Rule.BROKEN_LEASES, result.history.broken_leases),
        (Rule.CONCURRENCY, result.history.crowds),
        (Rule.QUOTAS, result.history.exceeded_quotas),
        (
            Rule.QUOTAS,
            [f"The rows of a principal have other bytes than counted: {each}" for each in result.records.wrong_counts],
        ),
        (Rule.WIDE_TOKENS, result.history.wide_tokens),
        (Rule.LEFT_KEYS, result.history.left_keys),
        (Rule.SURPRISES, result.history.surprises),
    ):
        yield from (Violation(rule, each) for each in descriptions)
    for leak in (*result.leaks, *_find_left_leases(result)):
        yield Violation(Rule.LEAKS, leak)


# -- calls --


def _check_call(result: SimulationResult, planned: PlannedCall, seen: CallObservations) -> Iterator[Violation]:
    stored = [call for call in result.records.calls if call.correlation_id == planned.key]
    if len(set(seen.call_ids)) > 1 or (len(stored) > 1 and not planned.forgets_key):
        yield Violation(
            Rule.SPLIT_KEYS, f"{planned.key} became {sorted({*seen.call_ids, *(each.id for each in stored)})}"
        )
    yield from _check_starts(result, planned, sum(call.runs for call in stored))
    if result.history.may_be_erased(planned):
        return
    for call in stored:
        yield from _check_outcome(result, planned, seen, call)
    if not seen.call_ids:
        return
    kept = next((call for call in stored if call.id == seen.call_ids[0]), None)
    if kept is None or kept.status not in FINAL_CALL_STATUSES:
        yield Violation(Rule.LOST_CALLS, f"{planned.key} was acknowledged, and is {kept and kept.status}")
        return
    yield from _check_statuses(result, planned, seen, kept)


def _may_take_dispatch_back(result: SimulationResult, planned: PlannedCall) -> bool:
    """Whether a request may be known not to be sent: its commit was not answered, or the upstream refused it until a login."""
    loses_responses = any(fault.kind is FaultKind.LOSE_RESPONSES for fault in result.plan.faults)
    return loses_responses or any(login.upstream == planned.upstream for login in result.plan.logins)


def _check_statuses(
    result: SimulationResult, planned: PlannedCall, seen: CallObservations, kept: StoredCall
) -> Iterator[Violation]:
    for before, after in pairwise(seen.statuses):
        changed = before.is_final and (before.status, before.outcome) != (after.status, after.outcome)
        if changed or (after.runs < before.runs and not _may_take_dispatch_back(result, planned)):
            yield Violation(Rule.BACKWARD_STEPS, f"{planned.key} went from {before} to {after}")
    if seen.statuses and seen.statuses[-1].is_final:
        last = seen.statuses[-1]
        if (last.status, last.outcome) != (kept.status, kept.outcome):
            yield Violation(Rule.BACKWARD_STEPS, f"{planned.key} was {last}, and is {kept.status} ({kept.outcome})")


def _check_starts(result: SimulationResult, planned: PlannedCall, runs: int) -> Iterator[Violation]:
    by_round = Counter(start.round for start in result.history.starts if start.key == planned.key)
    if planned.rerun_policy is RerunPolicy.NEVER and not planned.forgets_key and any(n > 1 for n in by_round.values()):
        yield Violation(Rule.UNSAFE_SECOND_STARTS, f"{planned.key} was started {dict(by_round)} times by round")
    if by_round[0] > runs and not result.history.may_be_erased(planned):
        yield Violation(Rule.FALSE_OUTCOMES, f"{planned.key} was started {by_round[0]} times, and counts {runs} runs")


def _check_outcome(
    result: SimulationResult, planned: PlannedCall, seen: CallObservations, call: StoredCall
) -> Iterator[Violation]:
    if call.outcome in {"timed_out", "rejected"} and _is_overdue(call) and _must_end_in_time(planned, seen):
        yield Violation(Rule.LATE_CALLS, f"{planned.key} is {call.outcome}: it waited until its deadline for no reason")
    problem = _find_false_outcome(result, planned, seen, call)
    if problem is not None:
        yield Violation(Rule.FALSE_OUTCOMES, f"{planned.key} is {call.outcome}: {problem}")


def _find_false_outcome(
    result: SimulationResult, planned: PlannedCall, seen: CallObservations, call: StoredCall
) -> str | None:
    """Why the outcome of a final call is not true; None if it may be."""
    return _contradict_upstream(result, planned, call) or _contradict_client(result, planned, seen, call)


def _contradict_upstream(result: SimulationResult, planned: PlannedCall, call: StoredCall) -> str | None:
    ends = [end for end in result.history.ends if end.key == planned.key]
    match call.outcome:
        case "result" | "tool_error":
            produced = {end.text for end in ends if end.outcome == call.outcome}
            if call.result not in produced:
                return f"its result is {call.result!r}, and its upstream made {sorted(map(str, produced))}"
        case "upstream_error" if not any(end.outcome == "upstream_error" for end in ends):
            return "its upstream returned no error"
        case "rejected" if any(start.key == planned.key for start in result.history.starts):
            return "it was started"
        case "unknown" if not _may_have_lost_answer(result, planned, call):
            return "no node and no answer was lost"
        case _:
            pass
    return None


def _may_have_lost_answer(result: SimulationResult, planned: PlannedCall, call: StoredCall) -> bool:
    """Whether a fault before its end may have kept its node from learning how the call ended.

    A reported call has no node: it is unknown if no report of its end comes before its deadline.
    """
    if planned.upstream is UpstreamKind.REPORTED:
        return _is_overdue(call)
    ended_at = ((call.finished_at or 0) + CLOCK_ERROR_MILLISECONDS - STARTED_AT) / 1000
    return any(
        each.may_lose_answers and each.at_seconds <= ended_at and each.upstream in {None, planned.upstream}
        for each in result.history.disturbances
    )


def _contradict_client(
    result: SimulationResult, planned: PlannedCall, seen: CallObservations, call: StoredCall
) -> str | None:
    is_overdue = _is_overdue(call)
    if call.outcome == "timed_out" and not is_overdue:
        return "its deadline had not passed"
    if call.outcome == "cancelled" and not seen.requested_cancel and not is_overdue:
        return "no cancellation was requested"
    is_quiet = not result.history.disturbances and not seen.requested_cancel and not planned.start_delay_seconds
    expected = _OUTCOMES[planned.end]
    if call.outcome is not None and is_quiet and not is_overdue and call.outcome != expected:
        return f"nothing went wrong, and its tool ends with {expected}"
    return None


def _is_overdue(call: StoredCall) -> bool:
    return (call.finished_at or 0) >= call.deadline_at - CLOCK_ERROR_MILLISECONDS


def _must_end_in_time(planned: PlannedCall, seen: CallObservations) -> bool:
    """Whether its deadline is long after the last fault, and after the end of its work and of every wait for its client."""
    waits_for_nobody = not planned.asks or bool(seen.call_ids)
    return waits_for_nobody and planned.end is not ToolEnd.SILENCE and planned.timeout_seconds > LATE_AFTER_SECONDS


# -- the log --


def _check_end_events(result: SimulationResult) -> Iterator[Violation]:
    ends: defaultdict[str | None, list[str | None]] = defaultdict(list)
    for event in result.records.events:
        if event.name == "call.finished":
            ends[event.call_id].append(event.outcome)
    for call in result.records.calls:
        about, outcomes = f"{call.id} ({call.correlation_id})", ends[call.id]
        if call.status in FINAL_CALL_STATUSES and not outcomes:
            yield Violation(Rule.LOST_EVENTS, f"the end of {about} is not in the log")
        if len(outcomes) > 1:
            yield Violation(Rule.SECOND_EVENTS, f"the end of {about} is in the log as {outcomes}")
        if outcomes and outcomes[-1] != call.outcome:
            yield Violation(Rule.FALSE_OUTCOMES, f"{about} is {call.outcome}, and in the log {outcomes}")


def _find_left_leases(result: SimulationResult) -> Iterator[str]:
    for call in result.records.calls:
        if call.lease_owner is not None:
            yield f"{call.id} ({call.correlation_id}, {call.phase}) is still leased by {call.lease_owner}"
