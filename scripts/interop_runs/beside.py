"""`pip install ringback` beside a framework: the base install must not set back any package of the framework's environment."""

import json
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from scripts.interop_runs.environments import Environment
from scripts.interop_runs.judge import Judgement, failed, passed

ROOT: Final = Path(__file__).resolve().parents[2]
PIP_SECONDS: Final = 600.0
LINES_QUOTED: Final = 3


def install_beside(environment: Environment) -> Judgement:
    """Install the base package from this checkout into a client's environment, and remove it again."""
    before, conflicts_before = _list_packages(environment), _list_conflicts(environment)
    installed = _pip(environment, "install", "--quiet", str(ROOT))
    if installed.returncode:
        return failed(f"pip install ringback: {installed.stderr.strip()[-200:]}")
    try:
        started = _python(environment, "-W", "error", "-c", "import ringback.client, ringback.receiver")
        conflicts = sorted(set(_list_conflicts(environment)) - set(conflicts_before))
        return judge_beside(before, _list_packages(environment), conflicts, started.stderr)
    finally:
        _pip(environment, "uninstall", "--quiet", "--yes", "ringback")


def judge_beside(
    before: Mapping[str, str], after: Mapping[str, str], conflicts: Sequence[str], error: str
) -> Judgement:
    """The versions of all packages before and after, pip's new conflicts, and what an import of the client said."""
    changed = {name: (old, after.get(name, "0")) for name, old in before.items() if after.get(name) != old}
    back = [f"{name} {old} → {new}" for name, (old, new) in changed.items() if _order(new) < _order(old)]
    if back:
        return failed(f"sets back {', '.join(back)}")
    if conflicts:
        return failed("; ".join(conflicts[:LINES_QUOTED]))
    if error.strip():
        return failed(f"import ringback.client: {error.strip().splitlines()[-1]}")
    return passed(", ".join(f"{name} {old} → {new}" for name, (old, new) in changed.items()) or "nothing else changes")


def _order(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def _list_packages(environment: Environment) -> dict[str, str]:
    listed: list[dict[str, str]] = json.loads(_pip(environment, "list", "--format", "json").stdout)
    return {package["name"]: package["version"] for package in listed}


def _list_conflicts(environment: Environment) -> list[str]:
    checked = _pip(environment, "check")
    return checked.stdout.strip().splitlines() if checked.returncode else []


def _pip(environment: Environment, *words: str) -> "subprocess.CompletedProcess[str]":
    return _python(environment, "-m", "pip", *words, "--disable-pip-version-check")


def _python(environment: Environment, *words: str) -> "subprocess.CompletedProcess[str]":
    command = ["nice", "-n", "10", str(environment.bin / "python"), *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PIP_SECONDS, check=False, cwd=environment.folder
    )
