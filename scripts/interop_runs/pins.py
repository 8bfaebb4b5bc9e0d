"""The pinned versions: pypi.json and npm.json, each `{environment: {package: {"version": …, "within"?: …}}}`.

`within` is the range that an update keeps to, in the ecosystem's own words: "<1.10" (PyPI), "^5" (npm).
"""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
LOOK_UP_SECONDS: Final = 300.0


class Ecosystem(StrEnum):
    PYPI = "pypi"
    NPM = "npm"

    @property
    def file(self) -> Path:
        return HERE / f"{self}.json"


@dataclass(frozen=True, slots=True)
class Pin:
    version: str
    within: str | None = None

    def to_json(self) -> dict[str, str]:
        return {"version": self.version} | ({} if self.within is None else {"within": self.within})


Pins = Mapping[str, Mapping[str, Pin]]
"""By environment, then by package."""


class LookUpFailed(Exception):
    """The registry did not say which version is newest; the message says why."""


def read_pins(ecosystem: Ecosystem) -> Pins:
    raw: dict[str, dict[str, dict[str, str]]] = json.loads(ecosystem.file.read_text(encoding="utf-8"))
    return {
        environment: {package: Pin(**pin) for package, pin in packages.items()} for environment, packages in raw.items()
    }


def update_pins(ecosystem: Ecosystem) -> list[str]:
    """Pin the newest versions within each range. Returns the changes, one sentence each."""
    pins = read_pins(ecosystem)
    find = find_newest_on_pypi if ecosystem is Ecosystem.PYPI else find_newest_on_npm
    newest = {environment: find(packages) for environment, packages in pins.items()}
    write_pins(
        ecosystem,
        {
            environment: {package: Pin(newest[environment][package], pin.within) for package, pin in packages.items()}
            for environment, packages in pins.items()
        },
    )
    return [
        f"{environment}: {package} {pin.version} → {newest[environment][package]}"
        for environment, packages in pins.items()
        for package, pin in packages.items()
        if newest[environment][package] != pin.version
    ]


def write_pins(ecosystem: Ecosystem, pins: Pins) -> None:
    lines = [
        f"  {json.dumps(environment)}: {json.dumps({package: pin.to_json() for package, pin in packages.items()})}"
        for environment, packages in pins.items()
    ]
    ecosystem.file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def find_newest_on_pypi(packages: Mapping[str, Pin]) -> dict[str, str]:
    """The newest releases that can be installed together into one environment of this machine's Python."""
    wanted = [f"{package}{pin.within or ''}" for package, pin in packages.items()]
    options = ("--dry-run", "--ignore-installed", "--quiet", "--report", "-")
    report: dict[str, Any] = json.loads(_ask(sys.executable, "-m", "pip", "install", *options, *wanted))
    found = {normalize(item["metadata"]["name"]): item["metadata"]["version"] for item in report["install"]}
    return {package: found[normalize(package)] for package in packages}


def find_newest_on_npm(packages: Mapping[str, Pin]) -> dict[str, str]:
    found: dict[str, str] = {}
    for package, pin in packages.items():
        versions = json.loads(_ask("npm", "view", f"{package}@{pin.within or 'latest'}", "version", "--json"))
        found[package] = versions if isinstance(versions, str) else max(versions, key=_order)  # npm lists them by date
    return found


def normalize(package: str) -> str:
    """The name of a PyPI package in one spelling, without extras."""
    return re.sub(r"[-_.]+", "-", package.partition("[")[0]).lower()


def _order(version: str) -> tuple[bool, list[int]]:
    """Releases after pre-releases, then by number."""
    return "-" not in version, [int(part) for part in re.findall(r"\d+", version)]


def _ask(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LOOK_UP_SECONDS, check=False)
    if done.returncode:
        raise LookUpFailed(f"{' '.join(command[-3:])}: {done.stderr.strip()[-300:]}")
    return done.stdout
