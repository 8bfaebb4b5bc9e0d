"""The chaos checker sees what it is there for: one forged history for each thing that must never happen."""

from collections.abc import Callable
from typing import Any

import pytest

from scripts.chaos_runs.checker import Rule, duplicates, violations
from scripts.chaos_runs.history import CallSeen, Heard, History, Seen, Start
from scripts.chaos_runs.plan import plan

WORKING = Seen("working", None, 1)
DONE = Seen("completed", "result", 1)


def told(call_id: str = "call_1", outcome: str = "result", **extra: Any) -> dict[str, Any]:
    data = {"call_id": call_id, "status": "completed", "outcome": outcome, **extra}
    return {"name": "call.finished", "data": data}


def a_history() -> History:
    """One call that went well: started once, seen on its way, told to its two webhooks."""
    call = CallSeen(key="k1", kind="modern/echo", unsafe=True, ids=["call_1", "call_1"], webhooks={"wh_1", "wh_2"})
    call.seen = [WORKING, DONE, DONE]
    heard = [Heard("evt_1", webhook, told()) for webhook in ("wh_1", "wh_2")]
    return History(calls=[call], starts=[Start("k1", 0)], heard=heard, logged=["call_1"])


def rules(history: History) -> set[Rule]:
    return {violation.rule for violation in violations(history)}


def test_a_history_in_which_all_went_well_is_clean() -> None:
    assert rules(a_history()) == set()


def test_a_call_that_nobody_acknowledged_promises_nothing() -> None:
    history = History(calls=[CallSeen(key="k1", kind="modern/echo", unsafe=True)])

    assert rules(history) == set()


def never_ends(history: History) -> None:
    history.calls[0].seen = [WORKING]


def is_never_seen(history: History) -> None:
    history.calls[0].seen = []


def comes_back_to_life(history: History) -> None:
    history.calls[0].seen = [DONE, WORKING, DONE]


def ends_in_another_way(history: History) -> None:
    history.calls[0].seen = [Seen("failed", "unknown", 1), DONE]


def counts_backwards(history: History) -> None:
    history.calls[0].seen = [Seen("working", None, 2), DONE]


def is_started_twice(history: History) -> None:
    history.starts = [Start("k1", 0), Start("k1", 0)]


def is_answered_twice(history: History) -> None:
    history.starts = [Start("k1", 0), Start("k1", 1), Start("k1", 1)]


def is_not_in_the_log(history: History) -> None:
    history.logged = []


def is_not_rung(history: History) -> None:
    history.heard = history.heard[:1]


def rings_for_another(history: History) -> None:
    history.heard = [*history.heard[:1], Heard("evt_1", "wh_2", told("call_2"))]


def is_twice_in_the_log(history: History) -> None:
    history.logged = ["call_1", "call_1"]


def rings_under_two_ids(history: History) -> None:
    history.heard = [*history.heard, Heard("evt_2", "wh_1", told())]


def rings_with_two_bodies(history: History) -> None:
    history.heard = [*history.heard, Heard("evt_1", "wh_1", told(resume_token="another"))]


def tells_another_end(history: History) -> None:
    history.heard = [*history.heard[:1], Heard("evt_1", "wh_2", told(outcome="tool_error"))]


def has_a_result_of_nothing(history: History) -> None:
    history.starts = []


def is_rejected_after_it_started(history: History) -> None:
    history.calls[0].seen = [Seen("failed", "rejected", 1)]


def is_run_again_uncounted(history: History) -> None:
    history.calls[0].unsafe = False
    history.starts = [Start("k1", 0), Start("k1", 0)]


def is_two_calls(history: History) -> None:
    history.calls[0].ids = ["call_1", "call_2"]


def is_refused(history: History) -> None:
    history.surprises = ["GET /v1/calls/call_1 was answered 500"]


FORGERIES = [
    (never_ends, Rule.LOST_CALLS),
    (is_never_seen, Rule.LOST_CALLS),
    (comes_back_to_life, Rule.BACKWARD_STEPS),
    (ends_in_another_way, Rule.BACKWARD_STEPS),
    (counts_backwards, Rule.BACKWARD_STEPS),
    (is_started_twice, Rule.UNSAFE_SECOND_STARTS),
    (is_answered_twice, Rule.UNSAFE_SECOND_STARTS),
    (is_not_in_the_log, Rule.LOST_EVENTS),
    (is_not_rung, Rule.LOST_EVENTS),
    (rings_for_another, Rule.LOST_EVENTS),
    (is_twice_in_the_log, Rule.SECOND_EVENTS),
    (rings_under_two_ids, Rule.SECOND_EVENTS),
    (rings_with_two_bodies, Rule.SECOND_EVENTS),
    (tells_another_end, Rule.UNTRUTHS),
    (has_a_result_of_nothing, Rule.UNTRUTHS),
    (is_rejected_after_it_started, Rule.UNTRUTHS),
    (is_run_again_uncounted, Rule.UNTRUTHS),
    (is_two_calls, Rule.SPLIT_KEYS),
    (is_refused, Rule.SURPRISES),
]


@pytest.mark.parametrize(("forge", "rule"), FORGERIES, ids=[forge.__name__ for forge, _ in FORGERIES])
def test_a_history_in_which_a_call(forge: Callable[[History], None], rule: Rule) -> None:
    history = a_history()
    forge(history)

    assert rule in rules(history)


def test_a_round_that_was_answered_is_no_second_start() -> None:
    history = a_history()
    history.starts = [Start("k1", 0), Start("k1", 1)]

    assert rules(history) == set()


def test_a_safe_tool_may_be_run_again_when_that_is_counted() -> None:
    history = a_history()
    call = history.calls[0]
    call.unsafe, call.seen = False, [WORKING, Seen("completed", "result", 2)]
    history.starts = [Start("k1", 0), Start("k1", 0)]

    assert rules(history) == set()


def test_a_callback_that_comes_again_under_its_own_id_is_a_duplicate_and_no_violation() -> None:
    history = a_history()
    history.heard = [*history.heard, history.heard[0]]

    assert rules(history) == set()
    assert duplicates(history) == 1


def test_a_seed_is_a_plan() -> None:
    assert plan(7) == plan(7)
    assert plan(7) != plan(8)
