"""Lines of JSON that outlive the process that wrote them. Standard library only: the stdio upstream starts in no time."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Journal:
    """One file, appended to by any number of processes: each line is one write, and durable when `note` returns."""

    def __init__(self, path: Path | str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def append(self, **entry: Any) -> None:
        os.write(self._file, json.dumps(entry).encode() + b"\n")
        os.fsync(self._file)


def entries(path: Path) -> Iterator[dict[str, Any]]:
    """Every whole line; one that its writer died in is nobody's."""
    if path.exists():
        for line in path.read_bytes().split(b"\n")[:-1]:
            yield json.loads(line)
