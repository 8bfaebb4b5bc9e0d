"""Seeds of scripts/simulate break no promise, replay exactly, and find bugs that are put in on purpose."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final, cast

import pytest

from ringback.admission import AdmissionGate
from scripts.simulate_runs.__main__ import Batch, breaks_rule, find_mutant, run_batch
from scripts.simulate_runs.audit import LeaseAudit
from scripts.simulate_runs.checks import find_violations
from scripts.simulate_runs.clock import NodeClock
from scripts.simulate_runs.database import EmptyDatabase, SharedDatabase
from scripts.simulate_runs.history import Disturbance, History, ObservedStatus
from scripts.simulate_runs.make_plan import MEDIUM, make_plan
from scripts.simulate_runs.mutants import MUTANTS
from scripts.simulate_runs.plan import (
    FaultKind,
    Plan,
    PlannedCall,
    PlannedFault,
    PlannedPublisher,
    PlannedReader,
    PlannedReceiver,
    PlannedTrouble,
    PlannedWebhook,
    ReaderKind,
    ReceiverTrouble,
    UpstreamKind,
)
from scripts.simulate_runs.rules import Rule
from scripts.simulate_runs.run import SimulationResult, run_plan
from scripts.simulate_runs.shrink import shrink_plan

SEEDS: Final = 8
DEEP_SEEDS: Final = 10_000
MUTANT_SEEDS_MAX: Final = 2_000
BATCH_SIZE: Final = 100

QUIET: Final = Plan(
    seed=1,
    nodes=2,
    calls=(PlannedCall(key="work-0", principal="alice", upstream=UpstreamKind.TASK, at_seconds=1.0, work_seconds=3.0),),
    receivers=(PlannedReceiver(name="receiver-0"),),
    webhooks=(PlannedWebhook(name="webhook-0", principal="alice", receiver="receiver-0"),),
)
"""One call, one webhook, and no fault."""


LEASED_DELIVERY: Final = """
    INSERT INTO deliveries (id, principal, webhook_id, event_id, kind, generation, state, attempts, lease_owner, lease_until,
        due_at, give_up_at, created_at)
    VALUES ('dlv_1', 'alice', 'sub_1', 'evt_1', 'event', 1, 'leased', 1, 'node-0', 9e15, 0, 0, 0)
"""


@pytest.fixture(scope="module")
def empty() -> Generator[EmptyDatabase]:
    database = EmptyDatabase()
    yield database
    database.connection.close()


@pytest.mark.requirement("R34")
@pytest.mark.requirement("R35")
def test_no_seed_breaks_a_promise(*, deep: bool) -> None:
    batches = run_deep_batches() if deep else [run_batch(range(SEEDS), nodes=3, size="medium")]

    for batch in batches:
        assert batch.failed == [], "scripts/simulate --nodes 3 --seed … --story"
        assert batch.totals["calls"] > 0


def run_deep_batches() -> list[Batch]:
    chunks = [range(start, start + BATCH_SIZE) for start in range(0, DEEP_SEEDS, BATCH_SIZE)]
    with ProcessPoolExecutor() as processes:
        return list(processes.map(partial(run_batch, nodes=3, size="medium"), chunks))


def test_a_call_without_faults_ends_with_its_result_and_one_callback(empty: EmptyDatabase) -> None:
    result = run_plan(QUIET, empty)

    assert find_violations(result) == []
    assert [(call.outcome, call.result) for call in result.records.calls] == [("result", "work-0 done by start 1")]
    assert [callback.body["name"] for callback in result.history.callbacks] == ["call.finished"]


def test_a_seed_replays_exactly(empty: EmptyDatabase) -> None:
    first, second = (run_plan(make_plan(7, nodes=3), empty) for _ in range(2))

    assert first.trace_hash == second.trace_hash
    assert first.history.facts == second.history.facts


def test_a_node_that_freezes_between_its_end_and_that_of_its_requests_thaws(empty: EmptyDatabase) -> None:
    """In this seed it had left its place by then, so it stayed frozen, and who waited for its end never acted again."""
    result = run_plan(make_plan(9508, nodes=3, size=MEDIUM), empty)

    assert find_violations(result) == []
    assert any(text.endswith(" thaws") for text in map(str, result.history.facts))


def test_no_node_reads_the_time_of_its_processor(empty: EmptyDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> float:
        raise AssertionError("The order of work would depend on how busy the machine is.")

    monkeypatch.setitem(cast("Any", AdmissionGate.__init__).__kwdefaults__, "cpu_time", refuse)

    assert find_violations(run_plan(QUIET, empty)) == []


def test_streams_and_publishers_replay_exactly_and_read_each_event_once(empty: EmptyDatabase) -> None:
    publisher = PlannedPublisher(name="publisher-0", principal="alice", at_seconds=0.5, events=4, rotates_after=2)
    readers = tuple(PlannedReader(kind=kind, principal="alice", at_seconds=0.1) for kind in ReaderKind)
    readers += (PlannedReader(kind=ReaderKind.STREAM, principal="alice", at_seconds=0.2),)
    kill = PlannedFault(kind=FaultKind.KILL, at_seconds=2.0)
    plan = replace(QUIET, publishers=(publisher,), readers=readers, faults=(kill,), resealed_at_seconds=4.0)

    first, second = (run_plan(plan, empty) for _ in range(2))

    assert first.trace_hash == second.trace_hash
    assert find_violations(first) == []
    assert [len(each.seqs) for each in first.history.reads.values()] == [4, 5, 5]
    assert len(first.history.published) == publisher.events


def test_a_node_that_listens_again_reads_what_it_may_have_missed(empty: EmptyDatabase) -> None:
    publisher = PlannedPublisher(name="publisher-0", principal="alice", at_seconds=5.0, events=1)
    deaf = tuple(
        PlannedFault(kind=FaultKind.LOSE_LISTENER, node=node, at_seconds=4.5, lasts_seconds=6.0) for node in (0, 1)
    )
    reader = PlannedReader(kind=ReaderKind.STREAM, principal="alice")
    plans = [replace(QUIET, seed=seed, publishers=(publisher,), readers=(reader,), faults=deaf) for seed in range(6)]
    deaf_node = next(mutant for mutant in MUTANTS if mutant.name == "deaf node")

    found = [find_violations(run_plan(plan, empty)) for plan in plans]
    with deaf_node.applied():
        found_without = [find_violations(run_plan(plan, empty)) for plan in plans]

    assert found == [[]] * len(plans)
    assert {each.rule for violations in found_without for each in violations} == {Rule.LATE_EVENTS}


def test_a_process_that_stops_ends_after_the_requests_that_it_handles(empty: EmptyDatabase) -> None:
    """A node seals a subscription with the first key after two seconds, before nodes with the second key look for it."""
    slow = replace(QUIET.receivers[0], latency_seconds=2.0)
    subscription = replace(QUIET.webhooks[0], name="subscription-0", at_seconds=0.0, refresh_seconds=5.0)
    plan = replace(QUIET, receivers=(slow,), webhooks=(subscription,), resealed_at_seconds=0.485)

    results = [run_plan(replace(plan, seed=seed), empty) for seed in range(6)]

    assert [find_violations(result) for result in results] == [[]] * len(results)


def test_a_seed_replays_exactly_in_another_process(empty: EmptyDatabase) -> None:
    code = (
        "from scripts.simulate_runs.run import run_plan, EmptyDatabase\n"
        "from scripts.simulate_runs.make_plan import make_plan\n"
        "print(run_plan(make_plan(11, nodes=3), EmptyDatabase()).trace_hash)\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1234"}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert other.stdout.strip() == run_plan(make_plan(11, nodes=3), empty).trace_hash


def test_a_failing_plan_is_shrunk_to_what_it_takes_to_fail() -> None:
    trouble = PlannedTrouble(trouble=ReceiverTrouble.FAILS, from_seconds=0.0, until_seconds=20.0)
    failing = replace(
        make_plan(3, nodes=3, size=MEDIUM),
        receivers=(PlannedReceiver(name="receiver-0", troubles=(trouble,)), PlannedReceiver(name="receiver-1")),
        webhooks=(*QUIET.webhooks, PlannedWebhook(name="webhook-1", principal="bob", receiver="receiver-1")),
        calls=(*QUIET.calls, *(replace(QUIET.calls[0], key=f"work-{number}", at_seconds=30.0) for number in (1, 2))),
    )
    no_retry = next(mutant for mutant in MUTANTS if mutant.name == "no retry")

    with no_retry.applied():
        smallest = shrink_plan(failing, lambda plan: breaks_rule(plan, {Rule.LOST_EVENTS}))

    assert (len(smallest.calls), len(smallest.webhooks), len(smallest.receivers)) == (1, 1, 1)
    assert (smallest.faults, smallest.nodes) == ((), 1)


CHEAP_MUTANTS: Final = {
    "early hand-off": 0,
    "hole in the log": 1,
    "kept labels": 20,
    "lost cursor": 14,
    "no deduplication": 4,
    "no redelivery": 22,
    "no revocation": 1,
    "no retry": 1,
    "second publication": 1,
    "wide token": 1,
}
"""Mutants that a few seeds find, with the first seed that does: the search begins there, and goes on if it no longer does."""


def test_bugs_that_are_put_in_on_purpose_are_found(*, deep: bool) -> None:
    first_seeds = dict.fromkeys((mutant.name for mutant in MUTANTS), 0) if deep else CHEAP_MUTANTS

    rows = [
        find_mutant(name, nodes=2, size="medium", seeds_max=MUTANT_SEEDS_MAX, first_seed=seed)
        for name, seed in first_seeds.items()
    ]

    assert [row["mutant"] for row in rows if row["seeds"] is None] == []


def test_a_mutant_leaves_nothing_behind(empty: EmptyDatabase) -> None:
    for mutant in MUTANTS:
        with mutant.applied():
            pass

    assert find_violations(run_plan(QUIET, empty)) == []


def test_an_unknown_end_needs_a_fault_that_may_lose_an_answer(empty: EmptyDatabase) -> None:
    result = run_plan(replace(QUIET, calls=(replace(QUIET.calls[0], upstream=UpstreamKind.PLAIN),)), empty)
    unknown = replace(result.records.calls[0], outcome="unknown")
    changed = replace(result, records=replace(result.records, calls=(unknown,)))

    for fault in (
        Disturbance(2.0, may_lose_answers=False),
        Disturbance(2.0, may_lose_answers=True, upstream=UpstreamKind.TASK),
        Disturbance(4_000.0, may_lose_answers=True),
    ):
        result.history.disturbances[:] = [fault]
        assert "work-0 is unknown: no node and no answer was lost" in _descriptions(changed, Rule.FALSE_OUTCOMES)

    result.history.disturbances[:] = [Disturbance(2.0, may_lose_answers=True)]
    assert not [each for each in _descriptions(changed, Rule.FALSE_OUTCOMES) if "no answer was lost" in each]


def test_only_the_receiver_of_a_webhook_excuses_a_delivery_that_is_dead_too_early(empty: EmptyDatabase) -> None:
    gone = (PlannedTrouble(trouble=ReceiverTrouble.GONE, from_seconds=100.0, until_seconds=101.0),)
    healthy, other = QUIET.receivers[0], PlannedReceiver(name="receiver-1", troubles=gone)
    result = run_plan(replace(QUIET, receivers=(healthy, other)), empty)
    dead = replace(result.records.deliveries[0], state="dead", attempts=1)
    records = replace(result.records, deliveries=(dead,))

    assert _descriptions(replace(result, records=records), Rule.LOST_EVENTS)

    own_receiver_gone = replace(result.plan, receivers=(replace(healthy, troubles=gone), other))
    assert not _descriptions(replace(result, plan=own_receiver_gone, records=records), Rule.LOST_EVENTS)


def test_a_webhook_receives_an_end_once_where_nothing_goes_wrong(empty: EmptyDatabase) -> None:
    result = run_plan(QUIET, empty)
    result.history.callbacks.append(result.history.callbacks[0])

    assert len(_descriptions(result, Rule.SECOND_EVENTS)) == 1


def test_a_webhook_never_receives_two_ends_of_a_call(empty: EmptyDatabase) -> None:
    result = run_plan(QUIET, empty)
    result.history.disturb("a fault")
    result.history.callbacks.append(replace(result.history.callbacks[0], message_id="evt_second"))

    assert len(_descriptions(result, Rule.SECOND_EVENTS)) == 1


def test_a_full_body_after_the_stub_of_its_event_needs_a_lease_that_was_revoked(empty: EmptyDatabase) -> None:
    result = run_plan(QUIET, empty)
    full = result.history.callbacks[0]
    key, stub = (
        (full.webhook_id, full.message_id),
        replace(full, body={**full.body, "data": {**full.body["data"], "erased": True}}),
    )
    result.history.disturb("a fault")
    result.history.second_lives.add(full.webhook_id)
    result.history.callbacks[:] = [stub, full]

    assert "came with two bodies" in _descriptions(result, Rule.FALSE_CALLBACKS)[0]
    result.history.revoked_leases[key] = 1
    assert not _descriptions(result, Rule.FALSE_CALLBACKS)

    changed = replace(full, body={**full.body, "data": {**full.body["data"], "tool": "other"}})
    for callbacks in ([stub, full, full], [full, changed], [stub, full, changed]):
        result.history.callbacks[:] = callbacks
        assert "came with two bodies" in _descriptions(result, Rule.FALSE_CALLBACKS)[0]


def test_a_callback_is_sent_under_its_nodes_lease_or_under_one_that_an_erasure_revoked(empty: EmptyDatabase) -> None:
    loop = asyncio.new_event_loop()
    database, history = SharedDatabase(empty, Random(1)), History(loop.time)
    empty.connection.execute(LEASED_DELIVERY)
    headers = {"x-mcp-subscription-id": "sub_1", "webhook-id": "evt_1"}
    clock = NodeClock(loop)
    audits = [
        LeaseAudit(name, database=database, clock=clock, history=history, open_calls_max=1)
        for name in ("node-0", "node-1")
    ]

    for erase in ("", "DELETE FROM deliveries"):
        empty.connection.execute(erase)
        for audit in audits:
            audit.check_send(headers)
        assert [each.partition(" ")[0] for each in history.broken_leases] == ["node-1"]
        history.broken_leases.clear()

    empty.clear()
    audits[0].check_send(headers)
    loop.close()
    assert [each.partition(" ")[0] for each in history.broken_leases] == ["node-0"]


def test_the_count_of_runs_decreases_only_if_a_dispatch_may_be_taken_back(empty: EmptyDatabase) -> None:
    result = run_plan(QUIET, empty)
    result.history.calls["work-0"].statuses[:] = [
        ObservedStatus("working", None, 1),
        ObservedStatus("working", None, 0),
    ]
    lost = PlannedFault(kind=FaultKind.LOSE_RESPONSES, at_seconds=0.0)

    assert len(_descriptions(result, Rule.BACKWARD_STEPS)) == 1
    assert not _descriptions(replace(result, plan=replace(result.plan, faults=(lost,))), Rule.BACKWARD_STEPS)


def _descriptions(result: SimulationResult, rule: Rule) -> list[str]:
    return [violation.description for violation in find_violations(result) if violation.rule is rule]


def test_units_that_pause_hold_the_database_and_lose_nothing(empty: EmptyDatabase) -> None:
    calls = tuple(replace(QUIET.calls[0], key=f"work-{number}", session="session-1") for number in range(3))
    results = [run_plan(replace(QUIET, calls=calls, pauses=pauses), empty) for pauses in (0.0, 1.0)]

    assert [find_violations(result) for result in results] == [[], []]
    assert results[0].trace_hash != results[1].trace_hash
