"""Prints pip constraints: the lowest version that pyproject.toml allows of each dependency of Ringback. For `scripts/setup`.

Test tools keep their newest versions, because an installation of Ringback does not include them.
"""

import re
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
LOWEST: Final = re.compile(r"(?P<name>[\w.-]+)>=(?P<version>[\w.]+)")


def lowest(requirement: str) -> str:
    """`httpx==0.28` for `httpx>=0.28,<1`. A lower bound must be an existing version."""
    found = LOWEST.match(requirement)
    if found is None:
        raise SystemExit(f"lowest_versions: {requirement} does not begin with a lower bound.")
    return f"{found['name']}=={found['version']}"


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for requirement in project["dependencies"] + extras["server"] + extras["redis"]:
        print(lowest(requirement))


if __name__ == "__main__":
    main()
