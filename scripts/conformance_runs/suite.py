"""Installs and runs the suite: an npm package and Node 22, both from the npm registry with exact versions."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

SUITE: Final = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
"""The newest version with 2026-07-28 and the tasks extension; `latest` on npm (0.1.16) has neither."""
NODE: Final = "node@22.23.3"
"""The suite needs fs.globSync, which Node has from 22 on."""
INSTALL_SECONDS: Final = 600.0
RUN_SECONDS: Final = 600.0
"""For one revision, which takes about 20 s."""
SCENARIO_MILLISECONDS: Final = 60_000
"""Twice the suite's own limit, for machines with two busy cores."""

STAMP_PARTS: Final = 6
"""The end of a results folder's name, after the scenario: 2026-11-20T22-04-57-418Z."""
REVISIONS: Final = ("2026-07-28", "2025-11-25")
BUILD: Final = Path(__file__).resolve().parents[2] / "build"


class SuiteFailed(Exception):
    """The suite could not be installed or run; the message says why."""


@dataclass(frozen=True, slots=True)
class Check:
    revision: str
    scenario: str
    id: str
    status: str
    """SUCCESS | FAILURE | WARNING | SKIPPED | INFO"""
    message: str | None


def install() -> Path:
    """The folder with both packages, installed once for each pair of versions."""
    folder = BUILD / f"conformance-{SUITE.rpartition('@')[2]}-{NODE.replace('@', '')}"
    if not folder.exists():
        npm = shutil.which("npm")
        if npm is None:
            raise SuiteFailed("npm is missing; it comes with Node: apt-get install npm")
        BUILD.mkdir(exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="conformance-", dir=BUILD))
        _run([npm, "install", "--no-audit", "--no-fund", "--silent", SUITE, NODE], fresh, INSTALL_SECONDS)
        fresh.rename(folder)
    return folder


def run(installed: Path, url: str, revision: str) -> Sequence[Check]:
    """Run all scenarios of the revision, also those that it does not score (tasks are an extension)."""
    commands = installed / "node_modules" / ".bin"
    with tempfile.TemporaryDirectory(prefix="conformance-results-") as results:
        command = [str(commands / "node"), str(commands / "conformance"), "server", "--url", url]
        options = ["--requirements", revision, "--timeout", str(SCENARIO_MILLISECONDS), "--output-dir", results]
        said = _run([*command, *options], installed, RUN_SECONDS, may_fail=True)
        checks = [
            _check(revision, folder, raw)
            for folder in sorted(Path(results).iterdir())
            for raw in json.loads((folder / "checks.json").read_text())
        ]
    if not checks:
        raise SuiteFailed(f"the suite ran no check: {said[-500:]}")
    return checks


def _check(revision: str, folder: Path, raw: dict[str, Any]) -> Check:
    scenario = folder.name.removeprefix("server-").rsplit("-", STAMP_PARTS)[0]
    return Check(revision, scenario, raw["id"], raw["status"], raw.get("errorMessage"))


def _run(command: Sequence[str], folder: Path, seconds: float, *, may_fail: bool = False) -> str:
    # The package's own `node` must come first: the system's may be too old.
    path = f"{Path(command[0]).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env=os.environ | {"PATH": path},
    )
    if done.returncode and not may_fail:
        raise SuiteFailed(f"{' '.join(command[:3])} … exited with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout + done.stderr
