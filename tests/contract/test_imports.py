"""Imports follow the layers of pyproject.toml, checked by import-linter."""

import subprocess
import sys
from pathlib import Path

from tests.support.limits import WAIT_SECONDS

ROOT = Path(__file__).parents[2]


def test_imports_point_down_only() -> None:
    linted = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_SECONDS,
        check=False,
    )
    assert linted.returncode == 0, linted.stdout + linted.stderr
