"""The command line of scripts/chaos."""

import argparse
import asyncio
import json
import secrets
import signal
import sys
import time
from collections import Counter
from typing import Any, Final

from scripts.chaos_runs.checker import Rule, Violation, count_duplicates, find_violations
from scripts.chaos_runs.plan import Plan, Store, make_cluster_plan, make_plan
from scripts.chaos_runs.run import ChaosResult, run_chaos

SEED_BITS: Final = 32


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends all child processes, as Ctrl-C does
    began = time.monotonic()
    totals: Counter[str] = Counter({"runs": 0, "calls": 0, **{str(rule): 0 for rule in Rule}, "kills": 0, "stops": 0})
    for seed in range(options.seed, options.seed + options.runs):
        done = asyncio.run(run_chaos(_make_plan(seed, options)))
        found = list(find_violations(done.history))
        totals.update(_counts(done, found))
        print_progress(
            f"seed {seed}: {count_outcomes(done)}; {done.kills} kills, {done.stops} stops; {done.steps} at a step"
        )
        for violation in found:
            print_progress(f"seed {seed}: VIOLATION of {violation.rule}: {violation.description}")
        if found:
            print_progress(f"to repeat this plan: scripts/chaos --seed {seed}{_cluster_options(options)}")
    report: dict[str, Any] = {
        **totals,
        "store": options.store,
        "nodes": options.nodes,
        "seed": options.seed,
        "seconds": round(time.monotonic() - began, 1),
    }
    print(json.dumps(report) if options.json else "\n".join(f"{name:<22}{value}" for name, value in report.items()))
    return 1 if any(totals[rule] for rule in Rule) else 0


def _counts(done: ChaosResult, found: list[Violation]) -> dict[str, int]:
    return {
        "runs": 1,
        "calls": len(done.history.acknowledged),
        **Counter(violation.rule for violation in found),
        "kills": done.kills,
        "stops": done.stops,
        "steps": done.steps,
        "duplicates": count_duplicates(done.history),
        **done.damages,
    }


def _make_plan(seed: int, options: argparse.Namespace) -> Plan:
    return make_plan(seed) if options.store == Store.SQLITE else make_cluster_plan(seed, nodes=options.nodes)


def _cluster_options(options: argparse.Namespace) -> str:
    return "" if options.store == Store.SQLITE else f" --store {options.store} --nodes {options.nodes}"


def count_outcomes(done: ChaosResult) -> str:
    """The number of calls by outcome."""
    ends = Counter(str(call.last and call.last.outcome) for call in done.history.acknowledged)
    return ", ".join(f"{count} {outcome}" for outcome, count in ends.most_common())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/chaos",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Kills and freezes real processes of the service and its upstreams while agents work.\n"
        "No violation means that these runs lost nothing that was acknowledged, and repeated nothing that must not be.",
        epilog="counters: kills and stops are faults (steps: those at a chosen step of the code); duplicates are callbacks\n"
        "that arrived again, which is allowed; each of the promises counts its violations, and must be 0.",
    )
    parser.add_argument("--runs", type=int, default=1, help="number of runs, with consecutive seeds (1)")
    parser.add_argument("--store", choices=list(Store), default=Store.SQLITE, help="the service's store (sqlite)")
    parser.add_argument("--nodes", type=int, default=1, help="nodes of the service, on PostgreSQL (1)")
    parser.add_argument("--seed", type=int, default=None, help="seed of the first run (random)")
    parser.add_argument("--json", action="store_true", help="one JSON object on one line")
    options = parser.parse_args()
    if options.nodes < 1 or options.runs < 1:
        parser.error("--nodes and --runs must be at least 1")
    if options.store == Store.SQLITE and options.nodes != 1:
        parser.error("SQLite has one node; several nodes need --store postgres")
    if options.seed is None:
        options.seed = secrets.randbits(SEED_BITS)
    return options


def print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
