"""Hostile neighbours of every kind at once, for half a minute: what is counted is zero. Latencies are shown, not judged."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from scripts.soak_runs import callers, connections
from scripts.soak_runs.quiet import Phase
from scripts.soak_runs.run import plan_of, run, say
from scripts.soak_runs.verdict import GROWTH_MIB_MAX, HEALTHZ_SECONDS_MAX, Shown, counts, verdict

MINUTES = 0.5
ZEROS = dict.fromkeys(("lost", "refused", "wrong", "unhealthy", "stuck", "failed"), 0)


@pytest.mark.requirement("R25")
@pytest.mark.requirement("R27")
async def test_a_quiet_principal_loses_nothing_beside_hostile_neighbours_of_every_kind() -> None:
    shown = await run(plan_of(MINUTES))
    say(json.dumps(verdict(shown)))

    assert counts(shown) == ZEROS
    assert shown.beside.started == len(shown.beside.callbacks) > 0
    assert all(_worked(shown.crowd[kind]) for kind in (*connections.KINDS, *callers.KINDS))


def _worked(done: Mapping[str, int]) -> bool:
    return done.get("opened", 0) > 0 or done.get("requests", 0) > 0


def good() -> Shown:
    alone = Phase(accepts=[0.01] * 100, callbacks=[0.02] * 100, healthz=[0.01], rss_mib=[100.0] * 50, started=100)
    return Shown(alone=alone, beside=replace(alone), crowd={"slow": {"opened": 1}}, stuck=0)


def test_a_run_in_which_nobody_suffered_is_ok() -> None:
    assert verdict(good())["ok"]


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
def test_a_run_in_which_the_quiet_principal_suffered_is_not_ok(suffered: dict[str, object]) -> None:
    shown = good()

    assert not verdict(replace(shown, beside=replace(shown.beside, **suffered)))["ok"]


def test_a_neighbours_call_that_never_ends_is_not_ok() -> None:
    assert not verdict(replace(good(), stuck=1))["ok"]


def test_a_p99_may_be_twenty_milliseconds_above_the_quiet_one_or_twice_as_long() -> None:
    shown = good()
    slow = replace(shown.alone, accepts=[0.1] * 100)

    assert verdict(replace(shown, beside=replace(shown.beside, accepts=[0.03] * 100)))["ok"]
    assert verdict(replace(shown, alone=slow, beside=replace(shown.beside, accepts=[0.2] * 100)))["ok"]
