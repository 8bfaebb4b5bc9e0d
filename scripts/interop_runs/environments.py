"""An environment for each client: a virtual environment or a node_modules, with pinned versions, kept between runs."""

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.interop_runs.pins import Ecosystem, Pin

CACHE_VARIABLE: Final = "RINGBACK_INTEROP_CACHE"
INSTALL_SECONDS: Final = 1800.0
"""The largest of these frameworks installs two hundred packages."""
NODE: Final = "node@22.23.3"
"""As in scripts/conformance: several of the npm clients need Node 22."""
ROOT: Final = Path(__file__).resolve().parents[2]
DRIVERS: Final = Path(__file__).parent / "drivers"
ERROR_CHARACTERS: Final = 400
STAMP: Final = ".interop-stamp"


class InstallFailed(Exception):
    """An environment could not be made; the message says why."""


@dataclass(frozen=True, slots=True)
class Environment:
    ecosystem: Ecosystem
    folder: Path

    @property
    def bin(self) -> Path:
        return self.folder / ("bin" if self.ecosystem is Ecosystem.PYPI else "node_modules/.bin")

    def command(self, driver: str) -> Sequence[str]:
        """The command that starts a driver in this environment."""
        if self.ecosystem is Ecosystem.PYPI:
            return [str(self.bin / "python"), str(DRIVERS / driver)]
        # An import of Node looks for packages beside the importing file.
        ignored = shutil.ignore_patterns("*.py", "__pycache__")
        shutil.copytree(
            DRIVERS, self.folder / "drivers", dirs_exist_ok=True, ignore=ignored, copy_function=_replace_file
        )
        return [str(self.bin / "node"), str(self.folder / "drivers" / driver)]

    def variables(self) -> dict[str, str]:
        """The process environment of a driver: the environment's commands first, and no settings of Ringback or Python."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RINGBACK_", "PYTHON"))}
        return kept | {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"}


def _replace_file(source: str, target: str) -> None:
    """Copy a file that a driver of another row may be about to read."""
    whole = Path(f"{target}.{os.getpid()}")
    shutil.copyfile(source, whole)
    whole.replace(target)


def default_cache() -> Path:
    return Path(os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "ringback-interop")


def install_environment(
    name: str, ecosystem: Ecosystem, pins: Mapping[str, Pin], cache: Path, *, extra: str | None = None
) -> Environment:
    """The environment with these versions; installed if the cache does not have it. An older one of that name is removed.

    With `extra`, it has Ringback with that extra too. Rows that run side by side may share an environment: one installs it.
    """
    folder = cache / ecosystem / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _install_if_missing(folder, ecosystem, pins, extra)
    return Environment(ecosystem, folder)


def _install_if_missing(folder: Path, ecosystem: Ecosystem, pins: Mapping[str, Pin], extra: str | None) -> None:
    wanted = _fingerprint(pins, [] if extra is None else _read_requirements(extra))
    stamp = folder / STAMP
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        if ecosystem is Ecosystem.PYPI:
            _install_from_pypi(folder, pins, [] if extra is None else [f"{ROOT}[{extra}]"])
        else:
            _install_from_npm(folder, pins)
        stamp.write_text(wanted, encoding="utf-8")


def _fingerprint(pins: Mapping[str, Pin], requirements: Sequence[str]) -> str:
    members = [sys.version_info[:2], NODE, {package: pin.version for package, pin in pins.items()}]
    text = json.dumps([*members, requirements] if requirements else members)
    return hashlib.sha256(text.encode()).hexdigest()


def _read_requirements(extra: str) -> list[str]:
    """What Ringback with this extra requires: a change of it makes a new environment."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"][extra]]


def _install_from_pypi(folder: Path, pins: Mapping[str, Pin], also: Sequence[str]) -> None:
    # Without a pip of its own, and without compiling what is never imported: half the time.
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder)], folder)
    wanted = [f"{package}=={pin.version}" for package, pin in pins.items()]
    _run([*pip_for(folder / "bin" / "python"), "install", "--quiet", "--no-compile", *wanted, *also], folder)


def pip_for(python: Path) -> Sequence[str]:
    """The command of this environment's pip, which works on the environment of `python`."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]


def _install_from_npm(folder: Path, pins: Mapping[str, Pin]) -> None:
    npm = shutil.which("npm")
    if npm is None:
        raise InstallFailed("npm is missing; it comes with Node: apt-get install npm")
    (folder / "package.json").write_text('{"private": true, "type": "module"}\n', encoding="utf-8")
    wanted = [NODE, *(f"{package}@{pin.version}" for package, pin in pins.items())]
    _run([npm, "install", "--save-exact", "--no-audit", "--no-fund", "--silent", *wanted], folder)


def _run(command: Sequence[str], folder: Path) -> None:
    # Installations give way to everything else on the machine.
    try:
        done = subprocess.run(
            ["nice", "-n", "10", *command],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InstallFailed(f"the installation took more than {INSTALL_SECONDS:g} s") from None
    if done.returncode:
        raise InstallFailed((done.stderr or done.stdout).strip()[-ERROR_CHARACTERS:])
