"""Finds violations of Ringback's promises in observations. Pure: its tests pass forged observations."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final

from scripts.chaos_runs.observations import Observations, ObservedCall, ObservedStatus

SIGNATURE_SECONDS_MAX: Final = 300.0
"""Standard Webhooks: receivers refuse a signature whose time differs by more than five minutes."""


class Rule(StrEnum):
    LOST_CALLS = "lost_calls"
    """A call was acknowledged, and is not final after the settling time."""
    LOST_EVENTS = "lost_events"
    """A terminal event is not in the log, or did not reach one of its webhooks."""
    UNSAFE_SECOND_STARTS = "unsafe_second_starts"
    BACKWARD_STEPS = "backward_steps"
    """A final status changed. The count of runs may decrease: a node that stops queues a call again that it has not sent."""
    SPLIT_KEYS = "split_keys"
    """An idempotency key returned two calls."""
    SECOND_EVENTS = "second_events"
    """A call ended twice: two events in the log, two webhook-ids at one webhook, or two bodies with one webhook-id."""
    FALSE_OUTCOMES = "untruths"
    """A result without a start of the tool, `rejected` with one, an uncounted start, or a callback with a different end."""
    WRONG_TIMES = "wrong_times"
    """A callback was signed with a time that its receiver refuses, as too old or in the future."""
    UNEXPECTED_RESPONSES = "surprises"


@dataclass(frozen=True, slots=True)
class Violation:
    rule: Rule
    description: str


def find_violations(history: Observations) -> Iterator[Violation]:
    for call in history.acknowledged:
        yield from check_keys(call)
        yield from check_statuses(call)
        yield from check_starts(call, history)
        yield from check_events(call, history)
    yield from check_times(history)
    for what in history.unexpected_responses:
        yield Violation(Rule.UNEXPECTED_RESPONSES, what)


def count_duplicates(history: Observations) -> int:
    """Callbacks repeated with the same webhook-id. Allowed: delivery is at least once."""
    return len(history.callbacks) - len({(heard.webhook, heard.message_id) for heard in history.callbacks})


def check_times(history: Observations) -> Iterator[Violation]:
    for heard in history.callbacks:
        if abs(heard.signed_seconds_ago) > SIGNATURE_SECONDS_MAX:
            yield Violation(Rule.WRONG_TIMES, f"{heard.message_id} was signed {heard.signed_seconds_ago:.0f} s earlier")


def check_keys(call: ObservedCall) -> Iterator[Violation]:
    if len(set(call.ids)) > 1:
        yield Violation(Rule.SPLIT_KEYS, f"{call.key} was acknowledged as {sorted(set(call.ids))}")


def check_statuses(call: ObservedCall) -> Iterator[Violation]:
    if call.last is None or not call.last.final:
        yield Violation(Rule.LOST_CALLS, f"{call.key} ({call.kind}, {call.ids[0]}) was last seen as {call.last}")
    for before, after in pairwise(call.statuses):
        if before.final and (before.status, before.outcome) != (after.status, after.outcome):
            yield Violation(Rule.BACKWARD_STEPS, f"{call.key} ({call.kind}) went from {before} to {after}")


def check_starts(call: ObservedCall, history: Observations) -> Iterator[Violation]:
    starts = Counter(start.round for start in history.starts if start.key == call.key)
    if call.unsafe and any(count > 1 for count in starts.values()):
        yield Violation(
            Rule.UNSAFE_SECOND_STARTS, f"{call.key} ({call.kind}) was started {dict(starts)} times by round"
        )
    if call.last is not None:
        yield from check_outcome(call, call.last, starts)


def check_outcome(call: ObservedCall, last: ObservedStatus, starts: Counter[int]) -> Iterator[Violation]:
    about = f"{call.key} ({call.kind}) is {last}, and was started {dict(starts)} times by round"
    if last.outcome in {"result", "tool_error"} and not starts[0]:
        yield Violation(Rule.FALSE_OUTCOMES, f"{about}: a result without a start")
    if last.outcome == "rejected" and starts[0]:
        yield Violation(Rule.FALSE_OUTCOMES, f"{about}: it reached its upstream")
    if starts[0] > last.runs:
        yield Violation(Rule.FALSE_OUTCOMES, f"{about}: a start was not counted")


def check_events(call: ObservedCall, history: Observations) -> Iterator[Violation]:
    call_id = call.ids[0]
    logged = sum(each == call_id for each in history.logged_events)
    if logged == 0:
        yield Violation(Rule.LOST_EVENTS, f"the end of {call.key} ({call_id}) is not in the log")
    if logged > 1:
        yield Violation(Rule.SECOND_EVENTS, f"the end of {call.key} ({call_id}) is {logged} times in the log")
    for webhook in sorted(call.webhooks):
        heard = [each for each in history.callbacks if each.webhook == webhook and each.is_end_event == call_id]
        if not heard:
            yield Violation(Rule.LOST_EVENTS, f"the end of {call.key} ({call_id}) did not reach {webhook}")
        if len({each.message_id for each in heard}) > 1 or any(each.body != heard[0].body for each in heard):
            yield Violation(Rule.SECOND_EVENTS, f"{webhook} received two ends of {call.key} ({call_id})")
        reported = {(each.body["data"]["status"], each.body["data"]["outcome"]) for each in heard}
        if call.last is not None and reported - {(call.last.status, call.last.outcome)}:
            yield Violation(
                Rule.FALSE_OUTCOMES, f"{webhook} was sent {reported} about {call.key}, which is {call.last}"
            )
