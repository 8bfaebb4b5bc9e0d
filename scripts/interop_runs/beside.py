"""`pip install ringback` beside a framework: the base install must not set back any package of the framework's environment.

pip resolves both together and reports what it would install; the environment is not changed.
"""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from scripts.interop_runs.environments import Environment, pip_for
from scripts.interop_runs.judge import Judgement, failed, passed
from scripts.interop_runs.pins import Pin

ROOT: Final = Path(__file__).resolve().parents[2]
PIP_SECONDS: Final = 600.0
ERROR_CHARACTERS: Final = 300


def install_beside(environment: Environment, pins: Mapping[str, Pin]) -> Judgement:
    """Whether the base package of this checkout can be added to a client's environment, and what that would change."""
    kept = [f"{package}=={pin.version}" for package, pin in pins.items()]
    resolved = _pip(environment, "install", "--dry-run", "--quiet", "--report", "-", str(ROOT), *kept)
    if resolved.returncode:
        return failed(" ".join(resolved.stderr.split())[-ERROR_CHARACTERS:])
    report: dict[str, Any] = json.loads(resolved.stdout)
    added = [(item["metadata"]["name"], item["metadata"]["version"]) for item in report["install"]]
    listed: list[dict[str, str]] = json.loads(_pip(environment, "list", "--format", "json").stdout)
    return judge_beside({package["name"]: package["version"] for package in listed}, dict(added))


def judge_beside(installed: Mapping[str, str], added: Mapping[str, str]) -> Judgement:
    """`installed` are the packages with their versions; `added` those that pip would install."""
    changed = {name: (old, added[name]) for name, old in installed.items() if added.get(name, old) != old}
    back = [f"{name} {old} → {new}" for name, (old, new) in changed.items() if _order(new) < _order(old)]
    if back:
        return failed(f"sets back {', '.join(back)}")
    return passed(", ".join(f"{name} {old} → {new}" for name, (old, new) in changed.items()) or "nothing else changes")


def _order(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def _pip(environment: Environment, *words: str) -> "subprocess.CompletedProcess[str]":
    command = ["nice", "-n", "10", *pip_for(environment.bin / "python"), *words]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=PIP_SECONDS, check=False, cwd=environment.folder
    )
