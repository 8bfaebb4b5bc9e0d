"""The snippets of scripts/deploy/OPERATIONS.md, which are run unchanged."""

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Final

from tests.support.forked_ringback import forked_ringback_program
from tests.support.limits import WAIT_SECONDS

PAGE: Final = Path(__file__).parents[2] / "scripts" / "deploy" / "OPERATIONS.md"
_SNIPPET: Final = re.compile(r"<!-- run: (?P<name>[a-z-]+) -->\n```sh\n(?P<code>.*?)```", re.DOTALL)


def read_snippets() -> dict[str, str]:
    """The marked snippets by their names."""
    return {match["name"]: match["code"] for match in _SNIPPET.finditer(PAGE.read_text(encoding="utf-8"))}


async def run_snippet(name: str, *, programs: Path | None = None, **environment: str) -> str:
    """Run a snippet in a shell that finds this Python, `ringback` and `programs`; return its output."""
    async with forked_ringback_program() as ringback, asyncio.timeout(WAIT_SECONDS):
        folders = [str(folder) for folder in (ringback, Path(sys.executable).parent, programs) if folder is not None]
        path = os.pathsep.join([*folders, os.environ["PATH"]])
        process = await asyncio.create_subprocess_exec(
            *("sh", "-euc", read_snippets()[name]),
            env=os.environ | environment | {"PATH": path},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()
