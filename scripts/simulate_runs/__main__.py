"""The command line of scripts/simulate."""

import argparse
import gc
import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from scripts.simulate_runs.checks import find_violations
from scripts.simulate_runs.database import EmptyDatabase
from scripts.simulate_runs.make_plan import SIZES, make_plan
from scripts.simulate_runs.mutants import MUTANTS, Mutant
from scripts.simulate_runs.plan import Plan
from scripts.simulate_runs.rules import Rule, Violation
from scripts.simulate_runs.run import LOG_LEVEL, SimulationResult, log_from, run_plan
from scripts.simulate_runs.shrink import shrink_plan

SEEDS_AT_ONCE: Final = 25
"""Seeds that a process takes at once."""
COLLECTION_SEEDS: Final = 5
"""Seeds between two collections of garbage. That of some seeds is still in the processor's cache: that of 25 takes three times
as long for each seed."""
MUTANT_SEEDS_MAX: Final = 2000


@dataclass(slots=True)
class Batch:
    """What one process found with some seeds."""

    totals: Counter[str] = field(default_factory=Counter[str])
    failed: list[tuple[int, list[Violation]]] = field(default_factory=list[tuple[int, list[Violation]]])

    def add_result(self, seed: int, result: SimulationResult) -> None:
        violations = find_violations(result)
        self.totals.update({"seeds": 1, "calls": len(result.records.calls), "faults": len(result.history.disturbances)})
        self.totals.update(str(violation.rule) for violation in violations)
        self.totals.update({"callbacks": len(result.history.callbacks), "simulated_seconds": int(result.seconds)})
        if violations:
            self.failed.append((seed, violations))


def main() -> int:
    options = _options()
    if options.mutants:
        return _run_mutants(options)
    if options.story:
        return _tell_story(make_plan(options.seed, nodes=options.nodes, size=SIZES[options.size]))
    return _run_seeds(options)


# -- seeds --


def _run_seeds(options: argparse.Namespace) -> int:
    began, cpu_began = time.monotonic(), _cpu_seconds()
    seeds = range(options.seed, options.seed + options.seeds)
    totals: Counter[str] = Counter({"seeds": 0, "calls": 0, **{str(rule): 0 for rule in Rule}})
    failed: list[int] = []
    for batch in _map_in_processes(
        partial(run_batch, nodes=options.nodes, size=options.size), _chunks(seeds), jobs=options.jobs
    ):
        totals.update(batch.totals)
        for seed, violations in batch.failed:
            failed.append(seed)
            print_progress(*(f"seed {seed}: {violation}" for violation in violations))
        print_progress(f"{totals['seeds']} seeds, {totals['calls']} calls, {len(failed)} failed")
    if failed:
        _explain(make_plan(failed[0], nodes=options.nodes, size=SIZES[options.size]))
        print_progress(
            f"to repeat it: scripts/simulate --seed {failed[0]} --nodes {options.nodes} --size {options.size} --story"
        )
    seconds = time.monotonic() - began
    report: dict[str, Any] = {
        **totals,
        "nodes": options.nodes,
        "jobs": options.jobs,
        "seconds": round(seconds, 1),
        "seeds_per_second": round(totals["seeds"] / seconds, 1),
        "cpu_ms_per_seed": round(1000 * (_cpu_seconds() - cpu_began) / totals["seeds"], 1),
    }
    _print_report(report, as_json=options.json)
    return 1 if failed else 0


def _cpu_seconds() -> float:
    """Of this process and of its children that have ended. It varies less than time does while other programs run."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def run_batch(seeds: range, *, nodes: int, size: str) -> Batch:
    """Run these seeds in this process. Garbage is collected after some of them, which takes less than during each."""
    batch, empty = Batch(), _empty_database()
    gc.disable()
    with log_from(LOG_LEVEL):
        for number, seed in enumerate(seeds, start=1):
            batch.add_result(seed, run_plan(make_plan(seed, nodes=nodes, size=SIZES[size]), empty))
            if number % COLLECTION_SEEDS == 0 or number == len(seeds):
                gc.collect()
    return batch


_databases: dict[int, EmptyDatabase] = {}


def _empty_database() -> EmptyDatabase:
    """One for each process: a child must not use its parent's. What exists by then is never collected."""
    if os.getpid() not in _databases:
        _databases[os.getpid()] = EmptyDatabase()
        gc.freeze()
    return _databases[os.getpid()]


def _chunks(seeds: range) -> Iterator[range]:
    for start in range(seeds.start, seeds.stop, SEEDS_AT_ONCE):
        yield range(start, min(start + SEEDS_AT_ONCE, seeds.stop))


def _map_in_processes(work: Any, chunks: Iterable[range], *, jobs: int) -> Iterator[Any]:
    if jobs == 1:
        yield from map(work, chunks)
        return
    with ProcessPoolExecutor(jobs) as processes:
        yield from processes.map(work, chunks)


# -- one failing seed --


def _explain(plan: Plan) -> None:
    """Shrink the plan, and print it with its story."""
    rules = {violation.rule for violation in find_violations(run_plan(plan, _empty_database()))}
    smallest = shrink_plan(plan, lambda smaller: breaks_rule(smaller, rules))
    print_progress(f"seed {plan.seed}, with {smallest.step_count} of {plan.step_count} steps:")
    _tell_story(smallest)


def breaks_rule(plan: Plan, rules: set[Rule]) -> bool:
    """Whether a run of the plan breaks one of these rules."""
    return bool(rules & {violation.rule for violation in find_violations(run_plan(plan, _empty_database()))})


def _tell_story(plan: Plan) -> int:
    result = run_plan(plan, _empty_database(), log_level=logging.INFO)
    for part in (*plan.calls, *plan.webhooks, *plan.receivers, *plan.faults):
        print_progress(str(part))
    print_progress(*(str(fact) for fact in result.history.facts), f"trace {result.trace_hash}")
    violations = find_violations(result)
    print_progress(*(f"VIOLATION of {violation}" for violation in violations))
    return 1 if violations else 0


# -- mutants --


def _run_mutants(options: argparse.Namespace) -> int:
    """Look for each mutant until it is found."""
    names = {mutant.name for mutant in MUTANTS}
    rows: list[dict[str, Any]] = []
    search = partial(find_mutant, nodes=options.nodes, size=options.size, seeds_max=options.seeds or MUTANT_SEEDS_MAX)
    for row in _map_in_processes(search, [mutant.name for mutant in MUTANTS], jobs=options.jobs):  # type: ignore[arg-type]
        rows.append(row)
        found = "not found" if row["seeds"] is None else f"after {row['seeds']} seeds, as {row['rule']}"
        print_progress(f"{row['mutant']:<20}{found:<50}{row['description']}")
    missing = [row["mutant"] for row in rows if row["seeds"] is None]
    report = {"mutants": len(names), "found": len(rows) - len(missing), "rows": rows}
    if options.json:
        print(json.dumps(report))
    else:
        print(f"{len(rows) - len(missing)} of {len(rows)} mutants found")
    return 1 if missing else 0


def find_mutant(name: str, *, nodes: int, size: str, seeds_max: int, first_seed: int = 0) -> dict[str, Any]:
    """How many seeds it takes to find the mutant, and the rule that it breaks."""
    mutant = next(each for each in MUTANTS if each.name == name)
    found = _first_violation(mutant, range(first_seed, first_seed + seeds_max), nodes=nodes, size=size)
    row: dict[str, Any] = {"mutant": name, "description": mutant.description, "seeds": None, "rule": None}
    return row if found is None else {**row, "seeds": found[0] - first_seed + 1, "rule": str(found[1].rule)}


def _first_violation(mutant: Mutant, seeds: range, *, nodes: int, size: str) -> tuple[int, Violation] | None:
    with mutant.applied():
        for seed in seeds:
            violations = find_violations(run_plan(make_plan(seed, nodes=nodes, size=SIZES[size]), _empty_database()))
            if any("TypeError(" in violation.description for violation in violations):
                raise RuntimeError(
                    f"The mutant {mutant.name!r} replaces a function that has other parameters now: {violations[0]}"
                )
            if violations:
                return seed, violations[0]
    return None


# -- options and output --


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/simulate",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Runs whole clusters on virtual time with seeded faults, and checks the promises of the product.\n"
        "No violation means that none of these seeds breaks a promise; a seed repeats its run exactly.",
        epilog="counters: seeds, calls, callbacks and faults are totals; simulated_seconds is virtual time;\n"
        "each of the others counts the violations of one promise, and must be 0.",
    )
    parser.add_argument(
        "--seeds", type=int, default=None, help="number of seeds (100; with --mutants the most for each: 2000)"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed (0)")
    parser.add_argument("--nodes", type=int, default=2, help="nodes of each cluster (2)")
    parser.add_argument("--size", choices=sorted(SIZES), default="medium", help="the largest counts of a plan (medium)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="processes that share the seeds (one for each core)"
    )
    parser.add_argument("--story", action="store_true", help="run the first seed only, and print every fact")
    parser.add_argument("--mutants", action="store_true", help="look for the bugs that are put in on purpose")
    parser.add_argument("--json", action="store_true", help="one JSON object on one line")
    options = parser.parse_args()
    for name in ("nodes", "jobs"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1")
    if options.seeds is not None and options.seeds < 1:
        parser.error("--seeds must be at least 1")
    if options.seeds is None and not options.mutants:
        options.seeds = 100
    return options


def _print_report(report: dict[str, Any], *, as_json: bool) -> None:
    print(json.dumps(report) if as_json else "\n".join(f"{name:<22}{value}" for name, value in report.items()))


def print_progress(*lines: str) -> None:
    for line in lines:
        print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
