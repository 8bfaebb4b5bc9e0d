"""Whole runs of scripts/chaos, and a checker that finds forged violations."""

from dataclasses import replace

import pytest

from scripts.chaos_runs.checker import Rule, find_violations
from scripts.chaos_runs.plan import PlannedNode, make_cluster_plan, make_plan
from scripts.chaos_runs.run import run_chaos

SEED = 20261120


@pytest.mark.sqlite_only
@pytest.mark.requirement("R13")
@pytest.mark.requirement("R33")
@pytest.mark.requirement("R35")
async def test_kills_and_freezes_break_no_promise(*, deep: bool) -> None:
    for seed in range(SEED, SEED + (100 if deep else 1)):
        done = await run_chaos(make_plan(seed))

        assert list(find_violations(done.history)) == [], f"scripts/chaos --seed {seed}"
        assert done.history.acknowledged
        assert done.kills


@pytest.mark.postgres_only
@pytest.mark.requirement("R33")
@pytest.mark.requirement("R34")
@pytest.mark.requirement("R35")
async def test_kills_and_freezes_of_nodes_and_their_database_break_no_promise(*, deep: bool) -> None:
    for seed in range(SEED, SEED + (100 if deep else 1)):
        done = await run_chaos(make_cluster_plan(seed, nodes=3))

        assert list(find_violations(done.history)) == [], f"scripts/chaos --store postgres --nodes 3 --seed {seed}"
        assert done.history.acknowledged
        assert done.damages


@pytest.mark.sqlite_only
async def test_a_receiver_that_forgets_does_not_go_unnoticed() -> None:
    quiet = replace(make_plan(SEED, calls=2), nodes=(PlannedNode(),), faults=())

    done = await run_chaos(
        quiet, settle_seconds=15, forgets=True
    )  # within 1 s a busy machine had acknowledged no call yet

    assert Rule.LOST_EVENTS in {violation.rule for violation in find_violations(done.history)}
