"""Runs rows side by side, each in a process of its own.

A row waits most of its time, for tools of 7 and 40 seconds and for restarts, so two cores carry four rows.
"""

import json
import subprocess
import sys
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Lock

from scripts.interop_runs.judge import Row
from scripts.interop_runs.rows import Entry, read_versions


class ParallelRows:
    def __init__(self, options: Sequence[str], *, jobs: int) -> None:
        """Run each row with these options of the command line, at most `jobs` at once."""
        self._options = options
        self._jobs = jobs
        self._lock = Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self._ends = False

    def run(self, entries: Sequence[Entry]) -> Generator[Row]:
        """Yield each row when it has ended. If this is closed or interrupted, the rows that run are ended too."""
        with ThreadPoolExecutor(self._jobs) as pool:
            try:
                for row in as_completed([pool.submit(self._run_row, entry) for entry in entries]):
                    yield row.result()
            finally:
                self._end()
                pool.shutdown(cancel_futures=True)

    def _run_row(self, entry: Entry) -> Row:
        command = [sys.executable, "-m", "scripts.interop_runs", entry.name, "--json", *self._options]
        with self._lock:
            if self._ends:
                return Row(name=entry.name, versions={}, not_run="interrupted")
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            self._running.add(process)
        output, _ = process.communicate()
        with self._lock:
            self._running.discard(process)
        try:
            return Row.from_json(entry.name, json.loads(output.splitlines()[-1])[entry.name])
        except (IndexError, ValueError):
            reason = f"the run ended without a result (exit code {process.returncode})"
            return Row(name=entry.name, versions=read_versions(entry), not_run=reason)

    def _end(self) -> None:
        """Each process ends its own Ringback, server and client."""
        with self._lock:
            self._ends = True
            for process in self._running:
                process.terminate()
