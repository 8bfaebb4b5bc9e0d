"""Judgements of what was observed. Pure.

A client passes a call if (a) it raises nothing, (b) its model reads either the result or what to do, and doing that brings the
result, (c) the tool runs once, to its end, and (d) a callback with the client's own session label arrives.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

CALL_ID: Final = re.compile(r"call_[0-9A-HJKMNP-TV-Z]{26}")
WAIT_TOOL: Final = "ringback_wait_for_call"
READABLE_BLOCKS: Final = frozenset({"text"})
"""Content that every model provider accepts in a tool's result. LangChain makes a `file` of a resource_link, which OpenAI and
Gemini refuse."""
SAYS_UNKNOWN: Final = re.compile(r"outcome is unknown|outcome\W{1,8}unknown")
"""An unknown outcome in words, or as JSON: some clients show a model only structuredContent, as JSON within JSON."""
QUOTED_CHARACTERS: Final = 160
DETAIL_LENGTH_MAX: Final = 300


class Verdict(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    THEIRS = "fails by itself"
    """It fails, and a change of Ringback cannot help; `known_limits` has the reason."""
    NOT_OFFERED = "not offered"
    """The client has no such thing."""
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Judgement:
    verdict: Verdict
    detail: str = ""

    def to_json(self) -> dict[str, str]:
        return {"verdict": str(self.verdict), "detail": self.detail}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer of a driver. `raised` is None if the client raised nothing."""

    text: str = ""
    blocks: Sequence[str] = ("text",)
    is_error: bool = False
    progress: int = 0
    tools: Sequence[str] = ()
    given_up: bool = False
    raised: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Runs:
    """How often the upstream's tool started and ended for one key."""

    started: int = 0
    finished: int = 0
    cancelled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCall:
    """A call and what followed it: `follow_ups` are the calls of Ringback's own tools that its text advised."""

    answer: Answer
    outcome: str
    """The text that only the tool's result contains."""
    runs: Runs
    follow_ups: Sequence[Answer] = ()
    sessions: Sequence[str | None] = ()
    """The client_session_id of each callback that arrived."""
    expected_session: str | None = None
    """The label that a callback must have; None if the client asked for no callback."""


def passed(detail: str = "") -> Judgement:
    return Judgement(Verdict.PASSED, detail)


def failed(detail: str) -> Judgement:
    """The detail on one line, and not longer than a reader of the table wants."""
    line = " ".join(detail.split())
    return Judgement(Verdict.FAILED, line if len(line) <= DETAIL_LENGTH_MAX else f"{line[:DETAIL_LENGTH_MAX]}…")


def outcome_of(key: str) -> str:
    """The text that a tool of the upstream returns for this key."""
    return f"outcome-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


def find_call_id(text: str) -> str | None:
    found = CALL_ID.search(text)
    return found[0] if found else None


def says_what_to_do(text: str) -> bool:
    return find_call_id(text) is not None and WAIT_TOOL in text


def judge_list(answer: Answer, wanted: Sequence[str]) -> Judgement:
    if answer.raised is not None:
        return failed(f"raised {answer.raised}")
    missing = [name for name in wanted if not any(listed.endswith(name) for listed in answer.tools)]
    return failed(f"not listed: {', '.join(missing)}") if missing else passed()


def judge_call(observed: ObservedCall) -> Judgement:
    """Rules (a) to (d)."""
    problem = (
        _find_exception(observed)
        or _find_unreadable_answer(observed)
        or _find_wrong_runs(observed.runs)
        or _find_missing_callback(observed)
    )
    if problem is not None:
        return failed(problem)
    return passed("result" if observed.outcome in observed.answer.text else "pending, then result")


def judge_progress(observed: ObservedCall) -> Judgement:
    judgement = judge_call(observed)
    if judgement.verdict is Verdict.PASSED and observed.answer.progress == 0:
        return failed("the client saw no progress")
    return judgement


def judge_cancel(observed: ObservedCall, cancelled: Answer) -> Judgement:
    """The model cancels a pending call with Ringback's tool, and the tool stops."""
    if observed.answer.raised is not None or not says_what_to_do(observed.answer.text):
        return failed(_find_exception(observed) or f"no pending answer: {quote(observed.answer)}")
    if cancelled.raised is not None:
        return failed(f"ringback_cancel_call raised {cancelled.raised}")
    if observed.runs.cancelled != 1:
        return failed(f"the tool was not stopped ({describe_runs(observed.runs)})")
    return passed()


def judge_give_up(gave_up: Answer, after: ObservedCall, runs: Runs) -> Judgement:
    """The client gives up locally. The call may go on or stop, but the client's session must go on."""
    if not gave_up.given_up:
        return Judgement(Verdict.NOT_OFFERED, "calls cannot be given up")
    judgement = judge_call(after)
    if judgement.verdict is not Verdict.PASSED:
        return failed(f"after giving up: {judgement.detail}")
    return passed("call stopped" if runs.cancelled else "call continued")


def judge_next_look(observed: ObservedCall) -> Judgement:
    """After a kill, a look is true, also if the answer of the call itself is lost. The first one may meet a dead connection."""
    last = observed.follow_ups[-1] if observed.follow_ups else Answer()
    if last.raised is not None:
        return failed(f"the next look raised {last.raised}")
    raised = next((f", after {each.raised}" for each in observed.follow_ups if each.raised is not None), "")
    if observed.outcome in last.text:
        return _judge_runs(observed.runs, f"result{raised}")
    if SAYS_UNKNOWN.search(last.text):
        return (
            passed(f"unknown, said so{raised}") if observed.runs.started == 1 else failed(describe_runs(observed.runs))
        )
    return failed(f"the next look says: {last.text[:QUOTED_CHARACTERS]!r}")


def judge_patience(answer: Answer, tool_seconds: float) -> Judgement:
    """How long the client waits by itself. Every patience passes: the detail is what a user has to know."""
    waited = answer.seconds >= tool_seconds
    return passed(f"> {tool_seconds:g} s" if waited else f"{answer.seconds:.0f} s")


def judge_callbacks(by_way: Mapping[str, ObservedCall]) -> Judgement:
    """One call for each way of setting the callback and the session."""
    if not by_way:
        return Judgement(Verdict.NOT_OFFERED, "sets nothing but a URL without a query")
    judged = {way: judge_call(observed) for way, observed in by_way.items()}
    wrong = [f"{way}: {each.detail}" for way, each in judged.items() if each.verdict is not Verdict.PASSED]
    return failed("; ".join(wrong)) if wrong else passed(", ".join(judged))


def _judge_runs(runs: Runs, detail: str) -> Judgement:
    problem = _find_wrong_runs(runs)
    return passed(detail) if problem is None else failed(problem)


def _find_exception(observed: ObservedCall) -> str | None:
    if observed.answer.raised is not None:
        return f"raised {observed.answer.raised}"
    return next((f"{WAIT_TOOL} raised {each.raised}" for each in observed.follow_ups if each.raised is not None), None)


def _find_unreadable_answer(observed: ObservedCall) -> str | None:
    answers = [observed.answer, *observed.follow_ups]
    for answer in answers:
        if refused := set(answer.blocks) - READABLE_BLOCKS:
            return f"hands the model's provider a block that it may refuse: {', '.join(sorted(refused))}"
    if observed.outcome in observed.answer.text:
        return None
    if not says_what_to_do(observed.answer.text):
        return f"the model reads neither the result nor what to do: {quote(observed.answer)}"
    if observed.outcome not in answers[-1].text:
        return f"{WAIT_TOOL} does not bring the result: {quote(answers[-1])}"
    return None


def _find_wrong_runs(runs: Runs) -> str | None:
    return None if runs == Runs(started=1, finished=1) else f"the tool {describe_runs(runs)}"


def _find_missing_callback(observed: ObservedCall) -> str | None:
    if observed.expected_session is None or observed.expected_session in observed.sessions:
        return None
    if observed.sessions:
        return f"the callback has the session label {observed.sessions[0]!r}"
    return "no callback arrived"


def describe_runs(runs: Runs) -> str:
    return f"started {runs.started} times, ended {runs.finished} times, was cancelled {runs.cancelled} times"


def quote(answer: Answer) -> str:
    return repr(answer.text[:QUOTED_CHARACTERS])


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """All judgements of one client or server."""

    name: str
    versions: Mapping[str, str]
    judgements: Mapping[str, Judgement] = field(default_factory=dict[str, Judgement])
    not_run: str | None = None
    """Why nothing was run."""

    @property
    def is_good(self) -> bool:
        return self.not_run is None and all(each.verdict is not Verdict.FAILED for each in self.judgements.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "versions": dict(self.versions),
            "not_run": self.not_run,
            "scenarios": {name: each.to_json() for name, each in self.judgements.items()},
        }

    @classmethod
    def from_json(cls, name: str, members: Mapping[str, Any]) -> "Row":
        judgements = {
            scenario: Judgement(Verdict(each["verdict"]), each["detail"])
            for scenario, each in members["scenarios"].items()
        }
        return cls(name=name, versions=members["versions"], judgements=judgements, not_run=members["not_run"])
