"""The judgements of scripts/interop: what a client may raise, show and lose."""

from dataclasses import replace

import pytest

from scripts.interop_runs.beside import judge_beside
from scripts.interop_runs.judge import (
    Answer,
    Judgement,
    ObservedCall,
    Row,
    Runs,
    Verdict,
    judge_call,
    judge_callbacks,
    judge_cancel,
    judge_give_up,
    judge_list,
    judge_next_look,
    judge_progress,
    outcome_of,
)
from scripts.interop_runs.known_limits import KNOWN_LIMITS, apply_known_limits

OUTCOME = outcome_of("key")
RAN_ONCE = Runs(started=1, finished=1)
PENDING_TEXT = "The tool is running as call call_01KAN7T7B3J4V5W6X7Y8Z9ABCD. Wait for it with ringback_wait_for_call."
INLINE = ObservedCall(answer=Answer(text=OUTCOME), outcome=OUTCOME, runs=RAN_ONCE)
PENDING = replace(INLINE, answer=Answer(text=PENDING_TEXT), follow_ups=[Answer(text=f"It returned {OUTCOME}.")])


def test_a_call_passes_with_its_result_or_with_a_pending_text_whose_advice_brings_it() -> None:
    assert judge_call(INLINE) == Judgement(Verdict.PASSED, "result")
    assert judge_call(PENDING) == Judgement(Verdict.PASSED, "pending, then result")


@pytest.mark.parametrize(
    ("observed", "detail"),
    [
        (replace(INLINE, answer=Answer(raised="McpError: timed out")), "raised McpError: timed out"),
        (replace(PENDING, follow_ups=[Answer(raised="McpError: 404")]), "ringback_wait_for_call raised McpError: 404"),
        (replace(INLINE, answer=Answer(text="It runs.")), "neither the result nor what to do: 'It runs.'"),
        (replace(PENDING, follow_ups=[]), "does not bring the result"),
        (replace(PENDING, follow_ups=[Answer(text="Still running.")]), "does not bring the result: 'Still running.'"),
        (replace(PENDING, answer=Answer(text=PENDING_TEXT, blocks=("text", "file"))), "may refuse: file"),
        (replace(INLINE, runs=Runs(started=2, finished=2)), "the tool started 2 times, ended 2 times"),
        (replace(INLINE, runs=Runs(started=1, cancelled=1)), "ended 0 times, was cancelled 1 times"),
        (replace(INLINE, expected_session="mine"), "no callback arrived"),
        (replace(INLINE, expected_session="mine", sessions=[None]), "the callback has the session label None"),
    ],
)
def test_a_call_fails_with_the_reason(observed: ObservedCall, detail: str) -> None:
    judgement = judge_call(observed)

    assert judgement.verdict is Verdict.FAILED
    assert detail in judgement.detail


def test_a_callback_with_the_client_s_own_session_passes() -> None:
    labelled = replace(INLINE, expected_session="mine", sessions=["mine"])

    assert judge_callbacks({"header": labelled, "query": labelled}) == Judgement(Verdict.PASSED, "header, query")
    wrong = judge_callbacks({"header": labelled, "query": replace(labelled, sessions=[])})
    assert wrong == Judgement(Verdict.FAILED, "query: no callback arrived")
    assert judge_callbacks({}).verdict is Verdict.NOT_OFFERED


def test_every_tool_of_the_upstream_must_be_listed_also_under_a_prefix() -> None:
    assert judge_list(Answer(tools=("stage_fast", "slow")), ["fast", "slow"]).verdict is Verdict.PASSED
    assert judge_list(Answer(tools=("slow",)), ["fast", "slow"]) == Judgement(Verdict.FAILED, "not listed: fast")
    assert judge_list(Answer(raised="OSError: refused"), []).detail == "raised OSError: refused"


def test_progress_must_be_seen() -> None:
    assert judge_progress(INLINE) == Judgement(Verdict.FAILED, "the client saw no progress")
    assert judge_progress(replace(INLINE, answer=Answer(text=OUTCOME, progress=3))).verdict is Verdict.PASSED


def test_a_cancelled_call_stops_the_tool() -> None:
    stopped = replace(PENDING, runs=Runs(started=1, cancelled=1))

    assert judge_cancel(stopped, Answer()).verdict is Verdict.PASSED
    assert judge_cancel(replace(stopped, runs=Runs(started=1)), Answer()).verdict is Verdict.FAILED
    assert judge_cancel(stopped, Answer(raised="McpError: no")).detail == "ringback_cancel_call raised McpError: no"
    assert judge_cancel(replace(stopped, answer=Answer(raised="Timeout")), Answer()).detail == "raised Timeout"
    assert judge_cancel(replace(stopped, answer=Answer(text="?")), Answer()).detail == "no pending answer: '?'"


def test_giving_up_leaves_the_session_usable_and_says_what_became_of_the_call() -> None:
    gave_up = Answer(given_up=True)

    assert judge_give_up(gave_up, INLINE, RAN_ONCE).detail == "call continued"
    assert judge_give_up(gave_up, INLINE, Runs(started=1, cancelled=1)).detail == "call stopped"
    assert judge_give_up(Answer(text=OUTCOME), INLINE, RAN_ONCE).verdict is Verdict.NOT_OFFERED
    broken = judge_give_up(gave_up, replace(INLINE, answer=Answer(raised="closed")), RAN_ONCE)
    assert broken == Judgement(Verdict.FAILED, "after giving up: raised closed")


def test_the_next_look_after_a_kill_must_be_true() -> None:
    unknown = Answer(text="Status: failed. The outcome is unknown and the tool may have run.")

    assert judge_next_look(PENDING) == Judgement(Verdict.PASSED, "result")
    assert judge_next_look(replace(PENDING, follow_ups=[unknown])).detail == "unknown, said so"
    in_json = Answer(text='{"error":"{\\"status\\":\\"failed\\",\\"outcome\\":\\"unknown\\"}"}')
    assert judge_next_look(replace(PENDING, follow_ups=[in_json])).detail == "unknown, said so"
    assert judge_next_look(replace(PENDING, runs=Runs(started=2, finished=2))).verdict is Verdict.FAILED
    assert judge_next_look(replace(PENDING, follow_ups=[Answer(raised="404")])).detail == "the next look raised 404"
    second = judge_next_look(replace(PENDING, follow_ups=[Answer(raised="closed"), unknown]))
    assert second == Judgement(Verdict.PASSED, "unknown, said so, after closed")
    assert judge_next_look(replace(PENDING, follow_ups=[Answer(text="[]")])).detail == "the next look says: '[]'"


def test_a_row_is_good_if_it_was_run_and_nothing_failed() -> None:
    good = Row(
        name="one",
        versions={},
        judgements={"list": Judgement(Verdict.PASSED), "progress": Judgement(Verdict.NOT_OFFERED)},
    )

    assert good.is_good
    assert not replace(good, judgements={"list": Judgement(Verdict.FAILED)}).is_good
    assert not replace(good, not_run="the registry has no such version").is_good


def test_the_base_install_beside_a_framework_may_raise_versions_but_set_back_none() -> None:
    installed = {"mcp": "1.30.0", "httpx": "0.28.1"}

    assert judge_beside(installed, {"ringback": "0.1.0"}) == Judgement(Verdict.PASSED, "nothing else changes")
    assert judge_beside(installed, {"httpx": "0.28.2"}).detail == "httpx 0.28.1 → 0.28.2"
    assert judge_beside(installed, {"mcp": "1.9.4"}) == Judgement(Verdict.FAILED, "sets back mcp 1.30.0 → 1.9.4")


def test_a_known_limit_of_a_client_says_why_it_is_not_ringback_s_failure() -> None:
    (name, scenario), reason = next(iter(KNOWN_LIMITS.items()))
    judgements = {scenario: Judgement(Verdict.FAILED, "raised"), "list": Judgement(Verdict.FAILED, "empty")}

    assert apply_known_limits(name, judgements) == {**judgements, scenario: Judgement(Verdict.THEIRS, reason)}
    assert apply_known_limits("another client", judgements) == judgements
    assert apply_known_limits(name, {scenario: Judgement(Verdict.PASSED)})[scenario].verdict is Verdict.PASSED
