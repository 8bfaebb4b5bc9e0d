"""Any life of a call, walked against a model that knows nothing but words."""

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ringback.domain.call import Call, CallStatus, IllegalTransition, advance_status, apply_completion
from ringback.domain.call_outcome import (
    CANCELLED_COMPLETION,
    CallCompletion,
    CallOutcome,
    completion_from_result,
    completion_from_upstream_error,
    failed_completion,
)
from ringback.domain.jsontext import sha256
from tests.support.clock import FakeClock
from tests.support.examples import CALL

RETENTION_SECONDS: Final = 7 * 86400

STATUS_BY_OUTCOME: Final = {
    "result": "completed",
    "tool_error": "completed",
    "upstream_error": "failed",
    "rejected": "failed",
    "timed_out": "failed",
    "unknown": "failed",
    "cancelled": "cancelled",
}

results = st.binary(max_size=64)
completions = st.one_of(
    st.builds(completion_from_result, results, is_error=st.booleans()),
    st.just(completion_from_upstream_error({"code": -32000, "message": "no"})),
    st.sampled_from([CallOutcome.REJECTED, CallOutcome.TIMED_OUT, CallOutcome.UNKNOWN]).map(
        lambda outcome: failed_completion(outcome, "lost")
    ),
    st.just(CANCELLED_COMPLETION),
)


class CallStates(RuleBasedStateMachine):
    """The model: a call is busy, or waits for input, or is over; only `finish` makes it over, and nothing comes after."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.call: Call = replace(CALL, lease_owner="runner-1", lease_token="lease_1", lease_until=self.clock.now())
        self.model = "working"
        self.ending: CallCompletion | None = None

    @rule(status=st.sampled_from(CallStatus), later=st.integers(0, 3600))
    def advance(self, status: CallStatus, later: int) -> None:
        now = self.clock.advance(later)
        if {self.model, str(status)} == {"working", "input_required"}:
            self.call = advance_status(self.call, status, now=now)
            self.model = str(status)
            assert self.call.updated_at == now
        else:
            with pytest.raises(IllegalTransition):
                advance_status(self.call, status, now=now)

    @rule(ending=completions, later=st.integers(0, 3600))
    def finish(self, ending: CallCompletion, later: int) -> None:
        now = self.clock.advance(later)
        if self.ending is None:
            self.call = apply_completion(self.call, ending, now=now, result_retention_seconds=RETENTION_SECONDS)
            self.model = STATUS_BY_OUTCOME[ending.outcome]
            self.ending = ending
            assert self.call.finished_at == now
        else:
            with pytest.raises(IllegalTransition):
                apply_completion(self.call, ending, now=now, result_retention_seconds=RETENTION_SECONDS)

    @invariant()
    def the_status_is_the_models(self) -> None:
        assert self.call.status == self.model
        assert self.call.is_final == (self.ending is not None)

    @invariant()
    def an_unfinished_call_knows_no_end(self) -> None:
        if self.ending is None:
            assert (self.call.outcome, self.call.finished_at, self.call.expires_at) == (None, None, None)
            assert (self.call.result_bytes, self.call.result_sha256, self.call.error) == (None, None, None)

    @invariant()
    def a_final_call_has_its_outcome_and_no_lease(self) -> None:
        if self.ending is None:
            return
        assert self.call.outcome is self.ending.outcome
        assert self.call.error == self.ending.error
        assert (self.call.lease_owner, self.call.lease_token, self.call.lease_until) == (None, None, None)
        assert self.call.finished_at is not None
        assert self.call.expires_at == self.call.finished_at + timedelta(seconds=RETENTION_SECONDS)

    @invariant()
    def the_digest_is_that_of_the_result(self) -> None:
        if self.ending is not None and self.ending.result is not None:
            assert self.call.result_bytes == len(self.ending.result)
            assert self.call.result_sha256 == sha256(self.ending.result)


TestCallLife = pytest.mark.requirement("R33")(CallStates.TestCase)
