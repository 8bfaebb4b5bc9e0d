"""A file of JSON lines that survives the death of its writer.

It imports only the standard library, so that the stdio upstream starts quickly.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Journal:
    """One file for any number of writing processes. Each line is one write, and durable when the method returns."""

    def __init__(self, path: Path | str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def append(self, **entry: Any) -> None:
        os.write(self._file, json.dumps(entry).encode() + b"\n")
        os.fsync(self._file)


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """All complete lines. A line is incomplete if its writer died."""
    if path.exists():
        for line in path.read_bytes().split(b"\n")[:-1]:
            yield json.loads(line)
