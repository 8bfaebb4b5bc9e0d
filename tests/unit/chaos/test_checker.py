"""The chaos checker finds every kind of violation in forged observations."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scripts.chaos_runs.checker import Rule, count_duplicates, find_violations
from scripts.chaos_runs.observations import Observations, ObservedCall, ObservedStatus, ReceivedCallback, ToolStart
from scripts.chaos_runs.plan import make_plan

WORKING = ObservedStatus("working", None, 1)
DONE = ObservedStatus("completed", "result", 1)


def make_observed_status(call_id: str = "call_1", outcome: str = "result", **extra: Any) -> dict[str, Any]:
    data = {"call_id": call_id, "status": "completed", "outcome": outcome, **extra}
    return {"name": "call.finished", "data": data}


def make_history() -> Observations:
    """One correct call: started once, observed while working, delivered to its two webhooks."""
    call = ObservedCall(key="k1", kind="modern/echo", unsafe=True, ids=["call_1", "call_1"], webhooks={"wh_1", "wh_2"})
    call.statuses = [WORKING, DONE, DONE]
    callbacks = [ReceivedCallback("evt_1", webhook, make_observed_status()) for webhook in ("wh_1", "wh_2")]
    return Observations(calls=[call], starts=[ToolStart("k1", 0)], callbacks=callbacks, logged_events=["call_1"])


def rules(history: Observations) -> set[Rule]:
    return {violation.rule for violation in find_violations(history)}


def test_a_history_in_which_all_went_well_is_clean() -> None:
    assert rules(make_history()) == set()


def test_an_unacknowledged_call_promises_nothing() -> None:
    history = Observations(calls=[ObservedCall(key="k1", kind="modern/echo", unsafe=True)])

    assert rules(history) == set()


def never_ends(history: Observations) -> None:
    history.calls[0].statuses = [WORKING]


def is_never_seen(history: Observations) -> None:
    history.calls[0].statuses = []


def restarts_after_end(history: Observations) -> None:
    history.calls[0].statuses = [DONE, WORKING, DONE]


def ends_in_another_way(history: Observations) -> None:
    history.calls[0].statuses = [ObservedStatus("failed", "unknown", 1), DONE]


def counts_backwards(history: Observations) -> None:
    history.calls[0].statuses = [ObservedStatus("working", None, 2), DONE]


def is_started_twice(history: Observations) -> None:
    history.starts = [ToolStart("k1", 0), ToolStart("k1", 0)]


def is_answered_twice(history: Observations) -> None:
    history.starts = [ToolStart("k1", 0), ToolStart("k1", 1), ToolStart("k1", 1)]


def is_not_in_the_log(history: Observations) -> None:
    history.logged_events = []


def has_no_callback(history: Observations) -> None:
    history.callbacks = history.callbacks[:1]


def has_foreign_callback(history: Observations) -> None:
    history.callbacks = [*history.callbacks[:1], ReceivedCallback("evt_1", "wh_2", make_observed_status("call_2"))]


def is_twice_in_the_log(history: Observations) -> None:
    history.logged_events = ["call_1", "call_1"]


def has_two_message_ids(history: Observations) -> None:
    history.callbacks = [*history.callbacks, ReceivedCallback("evt_2", "wh_1", make_observed_status())]


def has_two_bodies(history: Observations) -> None:
    history.callbacks = [
        *history.callbacks,
        ReceivedCallback("evt_1", "wh_1", make_observed_status(resume_token="another")),
    ]


def reports_other_end(history: Observations) -> None:
    history.callbacks = [
        *history.callbacks[:1],
        ReceivedCallback("evt_1", "wh_2", make_observed_status(outcome="tool_error")),
    ]


def has_a_result_of_nothing(history: Observations) -> None:
    history.starts = []


def is_rejected_after_it_started(history: Observations) -> None:
    history.calls[0].statuses = [ObservedStatus("failed", "rejected", 1)]


def is_rerun_without_count(history: Observations) -> None:
    history.calls[0].unsafe = False
    history.starts = [ToolStart("k1", 0), ToolStart("k1", 0)]


def is_two_calls(history: Observations) -> None:
    history.calls[0].ids = ["call_1", "call_2"]


def is_signed_an_hour_ahead(history: Observations) -> None:
    history.callbacks = [replace(callbacks, signed_seconds_ago=-3600.0) for callbacks in history.callbacks]


def is_refused(history: Observations) -> None:
    history.unexpected_responses = ["GET /v1/calls/call_1 was answered 500"]


FORGERIES = [
    (never_ends, Rule.LOST_CALLS),
    (is_never_seen, Rule.LOST_CALLS),
    (restarts_after_end, Rule.BACKWARD_STEPS),
    (ends_in_another_way, Rule.BACKWARD_STEPS),
    (is_started_twice, Rule.UNSAFE_SECOND_STARTS),
    (is_answered_twice, Rule.UNSAFE_SECOND_STARTS),
    (is_not_in_the_log, Rule.LOST_EVENTS),
    (has_no_callback, Rule.LOST_EVENTS),
    (has_foreign_callback, Rule.LOST_EVENTS),
    (is_twice_in_the_log, Rule.SECOND_EVENTS),
    (has_two_message_ids, Rule.SECOND_EVENTS),
    (has_two_bodies, Rule.SECOND_EVENTS),
    (reports_other_end, Rule.FALSE_OUTCOMES),
    (has_a_result_of_nothing, Rule.FALSE_OUTCOMES),
    (is_rejected_after_it_started, Rule.FALSE_OUTCOMES),
    (is_rerun_without_count, Rule.FALSE_OUTCOMES),
    (is_two_calls, Rule.SPLIT_KEYS),
    (is_signed_an_hour_ahead, Rule.WRONG_TIMES),
    (is_refused, Rule.UNEXPECTED_RESPONSES),
]


@pytest.mark.parametrize(("forge", "rule"), FORGERIES, ids=[forge.__name__ for forge, _ in FORGERIES])
def test_a_history_in_which_a_call(forge: Callable[[Observations], None], rule: Rule) -> None:
    history = make_history()
    forge(history)

    assert rule in rules(history)


def test_a_further_round_is_no_second_start() -> None:
    history = make_history()
    history.starts = [ToolStart("k1", 0), ToolStart("k1", 1)]

    assert rules(history) == set()


def test_a_safe_tool_may_be_run_again_when_that_is_counted() -> None:
    history = make_history()
    call = history.calls[0]
    call.unsafe, call.statuses = False, [WORKING, ObservedStatus("completed", "result", 2)]
    history.starts = [ToolStart("k1", 0), ToolStart("k1", 0)]

    assert rules(history) == set()


def test_a_callback_repeated_with_its_id_is_a_duplicate_and_no_violation() -> None:
    history = make_history()
    history.callbacks = [*history.callbacks, history.callbacks[0]]

    assert rules(history) == set()
    assert count_duplicates(history) == 1


def test_a_seed_is_a_plan() -> None:
    assert make_plan(7) == make_plan(7)
    assert make_plan(7) != make_plan(8)


def test_a_request_that_was_not_sent_is_counted_back() -> None:
    history = make_history()
    counts_backwards(history)

    assert rules(history) == set()
