"""The benchmarks run to their end: their results are read by people, so nothing else notices one that hangs or fails."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.support.forked_commands import run_forked_program

ROOT: Final = Path(__file__).parents[2]
QUICKEST: Final = """
import sys
from scripts.benchmarks import cli
from scripts.benchmarks.__main__ import main

sys.argv[1:] = ["cli", "--quick", "--json"]
cli.VARIANTS = {name: cli.VARIANTS[name] for name in ("library_baseline", "client")}
main()
"""
"""Two of the 14 processes that the benchmark of the command line starts, each of which takes up to a second of CPU."""
ALL: Final = (
    *("cli", "delivery", "delivery --store postgres", "scale", "scale --store postgres", "nodes"),
    *("events", "events --store postgres", "ui", "ui --store postgres"),
    *("clients", "calls", "gateway", "loop", "seal", "traces"),
)
RUN_SECONDS: Final = 600.0
"""Ends a hang. The smallest run of the slowest benchmark takes 35 s of CPU."""


async def test_each_benchmark_finishes_its_smallest_run(*, deep: bool) -> None:
    measured = json.loads(await run_forked_program(QUICKEST, folder=ROOT, environment=os.environ))
    assert measured["ratio"].keys() == {"library_baseline", "client"}
    if deep:
        await asyncio.to_thread(_run_all)


def _run_all() -> None:
    for name in ALL:
        command = [sys.executable, "-m", "scripts.benchmarks", *name.split(), "--quick", "--json"]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=RUN_SECONDS)
        assert run.returncode == 0, run.stderr
        assert json.loads(run.stdout.splitlines()[-1]), name
