"""The benchmarks run to their end: their results are read by people, so nothing else notices one that hangs or fails."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
QUICKEST: Final = ("cli",)
ALL: Final = (
    *("cli", "delivery", "delivery --store postgres", "scale", "scale --store postgres", "nodes"),
    *("events", "events --store postgres", "ui", "ui --store postgres"),
    *("clients", "calls", "gateway", "loop", "seal", "traces"),
)
RUN_SECONDS: Final = 600.0
"""Ends a hang. The smallest run of the slowest benchmark takes 35 s of CPU."""


def test_each_benchmark_finishes_its_smallest_run(*, deep: bool) -> None:
    for name in ALL if deep else QUICKEST:
        command = [sys.executable, "-m", "scripts.benchmarks", *name.split(), "--quick", "--json"]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=RUN_SECONDS)
        assert run.returncode == 0, run.stderr
        assert json.loads(run.stdout.splitlines()[-1]), name
