"""What a check found."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "scripts" / "deploy"


@dataclass(frozen=True, slots=True)
class Result:
    words: str
    faulty: bool = False


def judge(faults: list[str], ok: str) -> Result:
    """The faults, or what is well."""
    return Result("\n  ".join(["faulty:", *faults]), faulty=True) if faults else Result(ok)


def missing(program: str, package: str) -> Result:
    return Result(f"not checked: {program} is not installed (Debian: {package})")
