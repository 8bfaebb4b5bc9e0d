"""Stopwatches, percentiles, ratios, and facts about the machine."""

import asyncio
import gc
import os
import platform
import sqlite3
import statistics
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp

FSYNC_BYTES: Final = 4096
"""A page of the write-ahead log: about the size of a small transaction's commit."""
FSYNC_COUNT: Final = 200

Json = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Measured:
    """A number of operations, their duration, and this process's CPU time, threads included."""

    count: int
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def rate(self) -> float:
        return self.count / self.wall_seconds

    @property
    def cpu_us(self) -> float:
        return self.cpu_seconds / self.count * 1e6


@contextmanager
def measuring(count: int) -> Generator[Measured]:
    """Collects the garbage of earlier variants first, so that it does not count for this one."""
    gc.collect()
    measured = Measured(count=count)
    began, began_cpu = time.perf_counter(), time.process_time()
    yield measured
    measured.wall_seconds = time.perf_counter() - began
    measured.cpu_seconds = time.process_time() - began_cpu


def percentile(values: Sequence[float], share: float) -> float:
    """The percentile by nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def summary(values: Sequence[float], digits: int = 3) -> Json:
    """Median and spread."""
    return {
        "median": round(statistics.median(values), digits),
        "min": round(min(values), digits),
        "max": round(max(values), digits),
    }


def latency_ms(rounds: Sequence[Sequence[float]]) -> Json:
    """Median and spread, over the rounds, of the percentiles in ms; latencies are in seconds."""
    return {
        "of_each_round": min(map(len, rounds)),
        "p50_ms": summary([percentile(seconds, 0.50) * 1000 for seconds in rounds], 2),
        "p99_ms": summary([percentile(seconds, 0.99) * 1000 for seconds in rounds], 2),
    }


def paired_ratios(rounds: Sequence[Mapping[str, Measured]], above: str, below: str) -> list[float]:
    """The ratio of rates in each round, which cancels the drift of the machine."""
    return [measured[above].rate / measured[below].rate for measured in rounds]


def print_progress(text: str) -> None:
    """Print progress to standard error; standard output has only the result."""
    print(text, file=sys.stderr, flush=True)


def machine_facts() -> Json:
    return {
        "cores": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "python": platform.python_version(),
        "event_loop": type(asyncio.get_running_loop()).__module__.partition(".")[0],
        "aiohttp": aiohttp.__version__,
        "sqlite": sqlite3.sqlite_version,
    }


def fsync_seconds(folder: Path) -> list[float]:
    """The time of an fsync of one page, which is part of every commit."""
    taken: list[float] = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(FSYNC_COUNT):
            file.write(os.urandom(FSYNC_BYTES))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return taken


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
