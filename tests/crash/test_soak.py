"""All kinds of hostile clients at once, for some seconds: the counts must be zero. Latencies are printed, not compared."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from scripts.soak_runs import hostile_callers as callers
from scripts.soak_runs import hostile_connections as connections
from scripts.soak_runs.hostile_readers import UNREAD_RESULTS
from scripts.soak_runs.measured_client import MeasuredPhase
from scripts.soak_runs.run import make_plan, print_progress, run_soak
from scripts.soak_runs.stored_data import StoredDataSize
from scripts.soak_runs.verdict import GROWTH_MIB_MAX, HEALTHZ_SECONDS_MAX, SoakMeasurements, count_failures, judge_run

MINUTES = 0.5
"""With --deep. scripts/soak runs for hours."""
ALONE_SECONDS = 1.0
"""Instead of the ten that scripts/soak takes to measure latencies that it compares."""
FEW_ROWS = StoredDataSize(archived_calls=500, held=100)
FEW_WEBHOOKS = 30
"""Without --deep. A count of lost calls needs no more, and test_statement_work counts the work of statements on many rows."""
BESIDE_SECONDS = 2.0
"""Without --deep. Each kind of hostile client runs from the first second on, and all together use as much CPU as there is."""
SHORT_TIMEOUT_SECONDS = 3.0
"""Without --deep. The test waits for the end of the hostile clients' calls, which flood the service until then."""
COUNTS_THAT_MUST_BE_ZERO = dict.fromkeys(("lost", "refused", "wrong", "unhealthy", "stuck", "failed"), 0)


@pytest.mark.requirement("R25")
@pytest.mark.requirement("R27")
async def test_a_client_loses_nothing_beside_hostile_clients_of_every_kind(*, deep: bool) -> None:
    plan = replace(make_plan(MINUTES), alone_seconds=ALONE_SECONDS)
    short = replace(
        plan,
        beside_seconds=BESIDE_SECONDS,
        size=FEW_ROWS,
        webhooks=FEW_WEBHOOKS,
        timeout_seconds=SHORT_TIMEOUT_SECONDS,
    )
    shown = await run_soak(plan if deep else short)
    print_progress(json.dumps(judge_run(shown)))

    assert count_failures(shown) == COUNTS_THAT_MUST_BE_ZERO
    assert shown.beside.started == len(shown.beside.callbacks) > 0
    assert all(_ran_completely(shown.crowd[kind]) for kind in (*connections.KINDS, *callers.KINDS, UNREAD_RESULTS))


def _ran_completely(done: Mapping[str, int]) -> bool:
    return done.get("opened", 0) > 0 or done.get("requests", 0) > 0


def make_good_result() -> SoakMeasurements:
    alone = MeasuredPhase(
        accepts=[0.01] * 100, callbacks=[0.02] * 100, healthz=[0.01], rss_mib=[100.0] * 50, started=100
    )
    return SoakMeasurements(alone=alone, beside=replace(alone), crowd={"slow": {"opened": 1}}, stuck=0)


def test_a_run_without_harm_passes() -> None:
    assert judge_run(make_good_result())["ok"]


@pytest.mark.parametrize(
    "suffered",
    [
        {"accepts": [0.01] * 98 + [0.04] * 2},
        {"callbacks": [0.02] * 98 + [0.05] * 2},
        {"healthz": [HEALTHZ_SECONDS_MAX + 0.001]},
        {"rss_mib": [100.0] * 25 + [101.0 + GROWTH_MIB_MAX] * 25},
        {"lost": 1},
        {"refused": 1},
        {"wrong": 1},
        {"unhealthy": 1},
    ],
    ids=lambda suffered: next(iter(suffered)),
)
def test_a_run_that_harmed_the_measured_client_fails(suffered: dict[str, object]) -> None:
    shown = make_good_result()

    assert not judge_run(replace(shown, beside=replace(shown.beside, **suffered)))["ok"]


def test_a_hostile_clients_call_that_never_ends_fails_the_run() -> None:
    assert not judge_run(replace(make_good_result(), stuck=1))["ok"]


def test_a_p99_may_be_twenty_milliseconds_above_the_undisturbed_one_or_twice_as_long() -> None:
    shown = make_good_result()
    slow = replace(shown.alone, accepts=[0.1] * 100)

    assert judge_run(replace(shown, beside=replace(shown.beside, accepts=[0.03] * 100)))["ok"]
    assert judge_run(replace(shown, alone=slow, beside=replace(shown.beside, accepts=[0.2] * 100)))["ok"]
