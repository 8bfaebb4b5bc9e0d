"""Pins for pip: the lowest version that pyproject.toml allows of each dependency of Ringback. `scripts/setup` uses them.

The tools of the tests stay as new as they may be: whoever installs Ringback never meets them.
"""

import re
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOWEST: Final = re.compile(r"(?P<name>[\w.-]+)>=(?P<version>[\w.]+)")


def lowest(requirement: str) -> str:
    """`httpx==0.28` for `httpx>=0.28,<1`: a lower bound is a version that exists, so that it can be tested."""
    found = LOWEST.match(requirement)
    if found is None:
        raise SystemExit(f"lowest_versions: {requirement} has no lower bound that it begins with.")
    return f"{found['name']}=={found['version']}"


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for requirement in project["dependencies"] + project["optional-dependencies"]["server"]:
        print(lowest(requirement))


if __name__ == "__main__":
    main()
