"""CPU to start `ringback` commands and to import the client, as ratios to the imports that each of them needs."""

import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from resource import RUSAGE_CHILDREN, getrusage
from typing import Final

from scripts.benchmarks.measurement import Json

BASELINE: Final = ("-c", "import typer, rich, httpx")
LEAN_IMPORTS: Final = (
    "import os, sys; sys.modules['httpx._main'] = None; os.environ['PYDANTIC_DISABLE_PLUGINS'] = '__all__'"
)
"""What `ringback.cli.imports` does for each command: without httpx's own program, and without a search for plugins."""
FIRST_MODEL: Final = "type('M', (pydantic.BaseModel,), {'__annotations__': {'a': int}})"
CALL: Final = "ringback.cli.commands.call"
CREATE_CLIENT: Final = (
    "from ringback.cli.client_options import create_client; create_client('http://127.0.0.1:1', None)"
)
VARIANTS: Final[Mapping[str, Sequence[str]]] = {
    "baseline": BASELINE,
    "help": ("-m", "ringback", "--help"),
    **{
        name: ("-c", f"import ringback.cli.app as a; a.import_command_module('ringback.cli.commands.{name}')")
        for name in ("call", "listen", "webhooks", "keys", "backup", "doctor")
    },
    "call_used": ("-c", f"import ringback.cli.app as a; a.import_command_module('{CALL}'); {CREATE_CLIENT}"),
    "serve": ("-c", "import ringback.cli.app as a; a.import_command_module('ringback.cli.commands.serve')"),
    "command_floor": ("-c", f"{LEAN_IMPORTS}; import typer, asyncio, httpx, pydantic; {FIRST_MODEL}"),
    "library_baseline": ("-c", "import httpx, pydantic"),
    "client": ("-c", "import ringback.client"),
    "client_used": ("-c", "from ringback.client import RingbackClient"),
    "client_floor": ("-c", f"import asyncio, httpx, pydantic; {FIRST_MODEL}"),
}
"""`help` prints; the other variants of commands import what the command imports before it does anything, and `call_used` also
makes the client, as each command does whose arguments are right. `client_floor` and `command_floor` are what any asynchronous
client, and any command that uses one, imports: pydantic imports most of itself with the first model. Typer itself imports
pydantic for the first option (0.29), when it reads the arguments. Commands do without rich and without httpx's own program,
which the baseline imports."""
LIBRARY_VARIANTS: Final = frozenset({"library_baseline", "client", "client_used", "client_floor"})
"""Compared with `library_baseline`; all others with `baseline`."""


def cli(*, rounds: int) -> Json:
    """Median CPU seconds of each variant, and the ratios to the baseline, from interleaved rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
    for _ in range(rounds):
        for name, arguments in VARIANTS.items():
            seconds[name].append(_cpu_seconds(arguments))
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "cpu_seconds": {name: round(median, 3) for name, median in medians.items()},
        "ratio": {name: round(median / medians[_baseline(name)], 2) for name, median in medians.items()},
    }


def _baseline(variant: str) -> str:
    return "library_baseline" if variant in LIBRARY_VARIANTS else "baseline"


def _cpu_seconds(arguments: Sequence[str]) -> float:
    """User and system time of one process of this Python. `os.times` counts in steps of 10 ms."""
    before = getrusage(RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
