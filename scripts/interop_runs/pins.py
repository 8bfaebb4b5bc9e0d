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
    """Pin the newest version within each range. Returns the changes, one sentence each."""
    pins = read_pins(ecosystem)
    newest: dict[tuple[str, str | None], str] = {}
    for packages in pins.values():
        for package, pin in packages.items():
            if (package, pin.within) not in newest:
                newest[package, pin.within] = find_newest(ecosystem, package, pin.within)
    changes = [
        f"{environment}: {package} {pin.version} → {newest[package, pin.within]}"
        for environment, packages in pins.items()
        for package, pin in packages.items()
        if newest[package, pin.within] != pin.version
    ]
    write_pins(
        ecosystem,
        {
            environment: {package: Pin(newest[package, pin.within], pin.within) for package, pin in packages.items()}
            for environment, packages in pins.items()
        },
    )
    return changes


def write_pins(ecosystem: Ecosystem, pins: Pins) -> None:
    lines = [
        f"  {json.dumps(environment)}: {json.dumps({package: pin.to_json() for package, pin in packages.items()})}"
        for environment, packages in pins.items()
    ]
    ecosystem.file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def find_newest(ecosystem: Ecosystem, package: str, within: str | None) -> str:
    """The newest release within the range that this machine's Python can use, as the registry's own client finds it."""
    if ecosystem is Ecosystem.NPM:
        versions = json.loads(_ask("npm", "view", f"{package}@{within or 'latest'}", "version", "--json"))
        return str(versions if isinstance(versions, str) else max(versions, key=_order))  # npm lists them by date
    options = ("--dry-run", "--ignore-installed", "--no-deps", "--quiet", "--report", "-")
    report: dict[str, Any] = json.loads(
        _ask(sys.executable, "-m", "pip", "install", *options, f"{package}{within or ''}")
    )
    return str(report["install"][0]["metadata"]["version"])


def _order(version: str) -> tuple[bool, list[int]]:
    """Releases after pre-releases, then by number."""
    return "-" not in version, [int(part) for part in re.findall(r"\d+", version)]


def _ask(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=LOOK_UP_SECONDS, check=False)
    if done.returncode:
        raise LookUpFailed(f"{' '.join(command[-3:])}: {done.stderr.strip()[-300:]}")
    return done.stdout
