"""Any life of a call through the real store, with runners that die, freeze and come back, against a model of plain words.

Two runners lease the one call by turns, and each keeps its `LeasedCall`, as a frozen process does. Whatever they try, in
whatever order, with answers, cancellations, deadlines and the janitor in between: the row is what the model says, and a call
whose lease has gone changes nothing.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ringback.admission import AdmissionGate
from ringback.domain.call import Call, CallPhase, Handle
from ringback.domain.clock import seconds
from ringback.domain.errors import CallEnded
from ringback.domain.event import EventName
from ringback.domain.inputs import ELICITATION_METHOD
from ringback.domain.principal import DEFAULT_SCOPES, Caller
from ringback.janitor.recovery import LEASE_GRACE_SECONDS, OVERDUE_GRACE_SECONDS
from ringback.post_commit import CallHandoff
from ringback.runner.drivers.driver import LeaseLost, ParkedCall
from ringback.runner.lease_end import LeaseEnd
from ringback.runner.leased_call import LeasedCall
from ringback.services.calls.calls import Calls
from ringback.services.calls.input_answers import InputAnswers
from ringback.services.lifecycle import Lifecycle
from ringback.services.limits.schema_checks import SchemaCheckLimiter
from ringback.upstreams.catalog.requested_schemas import RequestedSchemas
from tests.properties.call_model import ROUND, CallModel
from tests.support.builders import make_call
from tests.support.clock import FakeClock
from tests.support.engine import Engine
from tests.support.examples import ALICE
from tests.support.leased_calls import make_lease_end, make_leased_call
from tests.support.stored_work import COMPLETED_RESULT, LEASE_SECONDS
from tests.support.stores import open_test_store

T = TypeVar("T")

EXAMPLES: Final = max(10, settings().max_examples // 2)
RUNNERS: Final = ("anna", "bert")
DEADLINE_SECONDS: Final = 600
CALLER: Final = Caller(principal=ALICE, scopes=DEFAULT_SCOPES)
TASK: Final = Handle(driver="task", data={"task_id": "1"})
ACCEPTED_ANSWER: Final = {"action": "accept"}
UNUSED: Final[Any] = None

HOLDER: Final = "the holder of the lease"
execution_actors = st.sampled_from((HOLDER, HOLDER, HOLDER, *RUNNERS))
"""Mostly the holder, so that calls end; the named runners often come too late."""
runners = st.sampled_from(RUNNERS)
names = st.sets(st.sampled_from("abc"), max_size=3)


def has_ended(machine: "CallInStore") -> bool:
    return machine.model.phase == "ended"


def is_running(machine: "CallInStore") -> bool:
    return not has_ended(machine)


class CallInStore(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.clock = FakeClock()
        self.folder = Path(
            tempfile.mkdtemp(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT"))
        )  # in memory, as other files of tests
        self.opening = open_test_store(self.folder, self.clock)
        self.engine = Engine(self.run(self.opening.__aenter__()), self.clock)
        self.leased_calls: dict[str, LeasedCall] = {}
        self.model = CallModel()
        self.keys_ever: list[str] = []
        store, recorder = self.engine.store, self.engine.recorder
        self.answers = InputAnswers(store, recorder, RequestedSchemas(), SchemaCheckLimiter(clock=self.clock))
        self.calls = Calls(
            store=store,
            clock=self.clock,
            recorder=recorder,
            attended_calls=self.engine.attended_calls,
            starter=UNUSED,
            quotas=UNUSED,
            lifecycle=Lifecycle(),
            call_handoff=CallHandoff(),
            admission=AdmissionGate(),
        )

    def teardown(self) -> None:
        self.run(self.opening.__aexit__(None, None, None))
        self.loop.close()
        shutil.rmtree(self.folder)

    def run(self, work: Awaitable[T]) -> T:
        """Without the signal handler of `Runner.run`, which takes as long as a read of the store."""
        return self.loop.get_loop().run_until_complete(work)

    @initialize(rerun=st.booleans(), attended=st.booleans())
    def start(self, *, rerun: bool, attended: bool) -> None:
        self.begin(rerun=rerun, attended=attended)

    @precondition(has_ended)
    @rule(rerun=st.booleans(), attended=st.booleans())
    def start_another(self, *, rerun: bool, attended: bool) -> None:
        self.begin(rerun=rerun, attended=attended)

    def begin(self, *, rerun: bool, attended: bool) -> None:
        """A call whose client waits is leased and marked as dispatched in the transaction that inserts it."""
        self.leased_calls, self.model, self.keys_ever = {}, CallModel(rerun=rerun), []
        self.model.deadline = self.clock.monotonic() + DEADLINE_SECONDS
        deadline = self.clock.now() + seconds(DEADLINE_SECONDS)
        self.call = make_call(rerun_allowed=rerun, accepts_input=True, deadline_at=deadline)
        if not attended:
            self.run(self.engine.insert_calls(self.call))
            return
        self.hold_lease("anna", self.run(self.engine.lease_dispatched_call(self.call, owner="anna")))
        self.model.dispatched = self.model.unsent = True
        self.model.runs = 1

    # -- runners --

    @precondition(is_running)
    @rule(who=runners)
    def lease_and_dispatch(self, who: str) -> None:
        """What a runner does nearly always."""
        self.lease(who)
        self.dispatch(who)

    @precondition(is_running)
    @rule(who=runners)
    def lease(self, who: str) -> None:
        until = self.clock.now() + seconds(LEASE_SECONDS)
        leased = self.run(
            self.engine.store.write(
                lambda tx: tx.call_queue.lease_queued(
                    self.call.upstream, owner=who, token=self.engine.ids.new_lease_token(), until=until, limit=1
                )
            )
        )
        assert len(leased) == (self.model.phase == "queued")
        for call in leased:
            self.hold_lease(who, call)

    def hold_lease(self, who: str, leased: Call) -> None:
        self.leased_calls[who] = make_leased_call(self.engine, leased)
        self.model.phase, self.model.holder = "running", who
        self.model.lease_ends = self.clock.monotonic() + LEASE_SECONDS

    def lease_end(self, who: str) -> LeaseEnd:
        return make_lease_end(self.engine, self.leased_calls[who])

    @precondition(is_running)
    @rule(who=execution_actors)
    def prolong(self, who: str) -> None:
        who = self.named(who)
        until = self.clock.now() + seconds(LEASE_SECONDS)
        held = self.run(
            self.engine.store.write(lambda tx: tx.call_queue.extend_leases(who, [self.call.id], until=until))
        )
        assert bool(held) == self.holds(who)
        if held:
            self.model.lease_ends = self.clock.monotonic() + LEASE_SECONDS

    @rule(who=execution_actors)
    def dispatch(self, who: str) -> None:
        who = self.named(who)
        if self.acts(who, lambda leased_call: leased_call.mark_dispatched(trusts_lease=True)) and not self.model.handle:
            self.model.dispatched = True
            self.model.runs += not self.model.unsent
            self.model.unsent = False

    @precondition(is_running)
    @rule(who=execution_actors, found=st.booleans())
    def save_handle(self, who: str, *, found: bool) -> None:
        who = self.named(who)
        if self.is_dispatched_by(who) and self.acts(
            who, lambda leased_call: leased_call.save_handle(TASK if found else None)
        ):
            self.model.handle = TASK if found else None

    @precondition(is_running)
    @rule(who=execution_actors, wanted=names)
    def request_input(self, who: str, wanted: set[str]) -> None:
        who = self.named(who)
        if self.is_dispatched_by(who) and self.acts(
            who, lambda leased_call: leased_call.request_input(questions(wanted))
        ):
            self.model.request_input(wanted)

    @precondition(is_running)
    @rule(who=execution_actors)
    def forward_answers(self, who: str) -> None:
        who = self.named(who)
        if self.is_dispatched_by(who) and self.acts(
            who, lambda leased_call: leased_call.mark_answers_sent(set(self.model.answers))
        ):
            self.model.answers = set()

    @precondition(is_running)
    @rule(who=execution_actors, wanted=names.filter(bool))
    def park(self, who: str, wanted: set[str]) -> None:
        who = self.named(who)
        if not self.is_dispatched_by(who):
            return
        self.run(self.lease_end(who).park_call(ParkedCall(handle=ROUND, input_requests=questions(wanted))))
        if not self.holds(who):
            return
        if self.model.cancel:
            self.model.end("cancelled")
        else:
            self.model.answers = set()
            self.model.request_input(wanted)
            self.model.phase, self.model.holder, self.model.handle = "parked", None, ROUND

    @rule(who=execution_actors)
    def hand_back(self, who: str) -> None:
        who = self.named(who)
        if who in self.leased_calls:
            self.run(self.lease_end(who).requeue_call())
            if self.holds(who):
                if self.model.unsent:
                    self.model.dispatched = False
                    self.model.runs -= not self.model.cancel
                self.model.is_unattended(is_handed_back=True)

    @rule(who=execution_actors)
    def finish(self, who: str) -> None:
        who = self.named(who)
        if who in self.leased_calls:
            self.run(self.lease_end(who).finish_call(COMPLETED_RESULT))
            if self.holds(who):
                self.model.end("result")

    # -- everybody else --

    @rule(which=st.sampled_from(["one", "all", "old"]))
    def answer(self, which: str) -> None:
        keys = list(self.model.input_requests)[: 1 if which == "one" else None] if which != "old" else ["r1.1", "r1.2"]
        responses = dict.fromkeys(keys or ["r9.9"], ACCEPTED_ANSWER)
        if self.model.phase == "ended":
            with pytest.raises(CallEnded):
                self.run(self.answers.answer_input(CALLER, self.call.id, responses))
            return
        receipt = self.run(self.answers.answer_input(CALLER, self.call.id, responses))
        accepted = [key for key in responses if key in self.model.input_requests]
        assert receipt.accepted == accepted
        assert receipt.ignored == [key for key in responses if key not in accepted]
        self.model.answers |= {self.model.input_requests.pop(key) for key in accepted}
        if accepted and not self.model.input_requests and self.model.phase == "parked":
            self.model.phase = "queued"

    @rule()
    def cancel(self) -> None:
        self.run(self.calls.cancel_call(CALLER, self.call.id))
        if self.model.phase == "ended":
            return
        self.model.cancel = True
        if self.model.leaves_no_handle:
            self.model.end("cancelled")

    @precondition(is_running)
    @rule(later=st.sampled_from([LEASE_SECONDS, LEASE_SECONDS + LEASE_GRACE_SECONDS, DEADLINE_SECONDS]))
    def wait(self, later: float) -> None:
        self.clock.advance(later)

    @precondition(is_running)
    @rule()
    def repair_store(self) -> None:
        self.run(self.engine.make_janitor().run_once())
        self.is_repaired()

    @precondition(is_running)
    @rule()
    def restart(self) -> None:
        """The process that serves the store died, and another one begins."""
        self.run(self.engine.run_recovery())
        if self.model.phase == "running":
            self.model.lease_ends = float("-inf")
        self.is_repaired()

    def is_repaired(self) -> None:
        now = self.clock.monotonic()
        if self.model.phase == "running" and self.model.lease_ends + LEASE_GRACE_SECONDS <= now:
            self.model.is_unattended(is_handed_back=False)
        # A runner may still cancel a queued call at its upstream; if none does, the call ends a little later.
        grace_seconds = 0 if self.model.leaves_no_handle else OVERDUE_GRACE_SECONDS
        if self.model.phase in {"queued", "parked"} and now >= self.model.deadline + grace_seconds:
            self.model.end("timed_out" if self.model.dispatched or self.model.runs else "rejected")

    # -- what must be --

    @invariant()
    def the_row_is_what_the_model_says_and_no_key_is_used_twice(self) -> None:
        call = self.stored()
        self.check_row(call)
        self.check_keys(call)

    def check_row(self, call: Call) -> None:
        assert (call.phase, call.status, call.outcome) == (self.model.phase, self.model.status, self.model.outcome)
        assert call.lease_owner == self.model.holder
        assert (call.lease_token is None) == (self.model.holder is None) == (call.lease_until is None)
        assert {key: request.name for key, request in call.input_requests.items()} == self.model.input_requests
        assert set(call.input_responses) == self.model.answers
        assert (call.runs, call.cancel_requested) == (self.model.runs, self.model.cancel)
        if call.phase is not CallPhase.ENDED:
            assert (call.dispatched_at is not None, call.handle) == (self.model.dispatched, self.model.handle)

    def check_keys(self, call: Call) -> None:
        for key in call.input_requests:
            if key not in self.keys_ever:
                self.keys_ever.append(key)
        assert len(set(self.keys_ever)) == len(self.keys_ever) <= self.model.rounds * 3

    @invariant()
    def events_were_recorded_exactly_once_and_in_order(self) -> None:
        log = self.run(self.engine.read_events())
        recorded = [event.name for event in log if event.call_id == self.call.id]
        ended = [EventName.CALL_FINISHED] if self.model.outcome else []
        assert recorded == [EventName.CALL_INPUT_REQUIRED] * self.model.rounds + ended

    # -- helpers --

    def stored(self) -> Call:
        return self.run(self.engine.read_call(self.call))

    def named(self, who: str) -> str:
        return (self.model.holder or "anna") if who == HOLDER else who

    def holds(self, who: str) -> bool:
        return self.model.phase == "running" and self.model.holder == who

    def is_dispatched_by(self, who: str) -> bool:
        """Whether it makes sense for this runner to do what a driver does: it sent the call itself."""
        return who in self.leased_calls and self.leased_calls[who].call.dispatched_at is not None

    def acts(self, who: str, act: Callable[[LeasedCall], Awaitable[None]]) -> bool:
        """Whether it could: a call whose lease has gone gets `LeaseLost`, and changes nothing."""
        if who not in self.leased_calls:
            return False
        if self.holds(who) and not self.leased_calls[who].lease_lost.is_set():
            self.run(act(self.leased_calls[who]))
            return True
        before = self.stored()
        with suppress(LeaseLost):
            self.run(act(self.leased_calls[who]))
        assert self.stored() == before
        return False


def questions(names: set[str]) -> dict[str, dict[str, Any]]:
    return {name: {"method": ELICITATION_METHOD, "params": {"message": name}} for name in sorted(names)}


TestCallInStore = pytest.mark.requirement("R35")(pytest.mark.requirement("R33")(CallInStore.TestCase))
TestCallInStore.settings = settings(max_examples=EXAMPLES)
