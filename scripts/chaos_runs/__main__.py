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

from scripts.chaos_runs.checker import Rule, Violation, duplicates, violations
from scripts.chaos_runs.plan import plan
from scripts.chaos_runs.run import Run, run

SEED_BITS: Final = 32


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as after Ctrl-C, no process is left behind
    began = time.monotonic()
    told: Counter[str] = Counter({"runs": 0, "calls": 0, **{str(rule): 0 for rule in Rule}, "kills": 0, "stops": 0})
    for seed in range(options.seed, options.seed + options.runs):
        done = asyncio.run(run(plan(seed)))
        found = list(violations(done.history))
        told.update(_counts(done, found))
        _say(f"seed {seed}: {_ends(done)}; {done.kills} kills, {done.stops} stops; {done.steps} at a step")
        for violation in found:
            _say(f"seed {seed}: VIOLATION of {violation.rule}: {violation.what}")
        if found:
            _say(f"the same plan again: scripts/chaos --seed {seed}")
    report: dict[str, Any] = {**told, "seed": options.seed, "seconds": round(time.monotonic() - began, 1)}
    print(json.dumps(report) if options.json else "\n".join(f"{name:<22}{value}" for name, value in report.items()))
    return 1 if any(told[rule] for rule in Rule) else 0


def _counts(done: Run, found: list[Violation]) -> dict[str, int]:
    return {
        "runs": 1,
        "calls": len(done.history.acknowledged),
        **Counter(violation.rule for violation in found),
        "kills": done.kills,
        "stops": done.stops,
        "steps": done.steps,
        "duplicates": duplicates(done.history),
    }


def _ends(done: Run) -> str:
    """How the calls ended, which shows whether the plan reached them at all."""
    ends = Counter(str(call.last and call.last.outcome) for call in done.history.acknowledged)
    return ", ".join(f"{count} {outcome}" for outcome, count in ends.most_common())


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/chaos")
    parser.add_argument("--runs", type=int, default=1, help="each with the next seed (1)")
    parser.add_argument(
        "--store", choices=["sqlite"], default="sqlite", help="where the service keeps its calls (sqlite)"
    )
    parser.add_argument(
        "--seed", type=int, default=None, help="of the first run; the same seed, the same plan (a random one)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object on one line")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = secrets.randbits(SEED_BITS)
    return options


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
