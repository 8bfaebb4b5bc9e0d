"""The command line of scripts/soak."""

import argparse
import asyncio
import json
import sys

from scripts.soak_runs.hostile_clients import KINDS
from scripts.soak_runs.run import make_plan, run_soak
from scripts.soak_runs.verdict import judge_run


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/soak")
    parser.add_argument("--minutes", type=float, default=0.5, help="approximate duration of the run (0.5)")
    parser.add_argument("--json", action="store_true", help="one JSON object on one line")
    parser.add_argument(
        "--without", action="append", default=[], choices=KINDS, help="leave out this kind of hostile clients"
    )
    options = parser.parse_args()
    verdict = judge_run(asyncio.run(run_soak(make_plan(options.minutes, without=options.without))))
    print(json.dumps(verdict) if options.json else "\n".join(f"{name:<20} {value}" for name, value in verdict.items()))
    return 0 if verdict["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
