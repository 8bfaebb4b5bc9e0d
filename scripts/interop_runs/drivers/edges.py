"""Runs the checks of an `edges_….py`: its public coroutine functions with one parameter, each with a folder of its own."""

import asyncio
import inspect
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import adapter_kit

SECONDS_MAX = 60.0
"""For one check. None of them waits for anything."""


def run(names: Mapping[str, Any], build_desk: Callable[[Path], Any]) -> None:
    """Run all checks, print those that fail, and exit with 1 if there are any."""
    assert adapter_kit.ROOT.is_dir()  # it has put the checkout on the path
    checks = {name: check for name, check in names.items() if is_check(name, check)}
    failed = [name for name, check in checks.items() if not passes(check, build_desk)]
    print("failed: " + ", ".join(failed) if failed else f"{len(checks)} passed")
    sys.exit(1 if failed else 0)


def is_check(name: str, check: Any) -> bool:
    return name[0] != "_" and inspect.iscoroutinefunction(check) and [*inspect.signature(check).parameters] == ["desk"]


def passes(check: Callable[[Any], Any], build_desk: Callable[[Path], Any]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            asyncio.run(asyncio.wait_for(check(build_desk(Path(folder))), SECONDS_MAX))
        except Exception:  # noqa: BLE001 - any failure of a check is one
            traceback.print_exc()
            return False
    return True
