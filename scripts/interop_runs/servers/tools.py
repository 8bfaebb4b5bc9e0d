"""The tools of every server of the matrix that is made with a framework of its own environment.

It uses only the standard library. `recorded(what, key)` writes the ledger, as scripts/interop_runs/upstream.py does.
"""

import asyncio
import hashlib
import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

REPORT_STEPS = 6


def port() -> int:
    return int(sys.argv[1])


def outcome_of(key: str) -> str:
    return f"outcome-{hashlib.sha256(key.encode()).hexdigest()[:12]}"


async def run(key: str, seconds: float = 0.0) -> str:
    """Take the given seconds, and return the outcome of this key."""
    with recorded_run(key):
        await asyncio.sleep(seconds)
        return outcome_of(key)


@contextmanager
def recorded_run(key: str) -> Generator[None]:
    _record(key, "started")
    try:
        yield
    except BaseException:
        _record(key, "cancelled")
        raise
    _record(key, "finished")


def _record(key: str, what: str) -> None:
    with Path(sys.argv[2]).open("a", encoding="utf-8") as ledger:
        ledger.write(json.dumps({"key": key, "what": what}) + "\n")
