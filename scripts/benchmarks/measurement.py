"""Stopwatches, percentiles, ratios, and what machine this is."""

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
"""A page of the write-ahead log, which is about what a commit of one small transaction adds."""
FSYNC_COUNT: Final = 200

Json = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Measured:
    """So many operations took so long, and so much CPU of this process, its threads included."""

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
    """Garbage of earlier variants is collected before, so that nobody pays for another."""
    gc.collect()
    measured = Measured(count=count)
    began, began_cpu = time.perf_counter(), time.process_time()
    yield measured
    measured.wall_seconds = time.perf_counter() - began
    measured.cpu_seconds = time.process_time() - began_cpu


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of the others does not exceed (nearest rank)."""
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
    """Of each round's latencies in seconds, the percentiles in ms; of these, median and spread."""
    return {
        "of_each_round": min(map(len, rounds)),
        "p50_ms": summary([percentile(seconds, 0.50) * 1000 for seconds in rounds], 2),
        "p99_ms": summary([percentile(seconds, 0.99) * 1000 for seconds in rounds], 2),
    }


def paired_ratios(rounds: Sequence[Mapping[str, Measured]], above: str, below: str) -> list[float]:
    """The ratio of rates of each round: what the machine did at that minute cancels out."""
    return [measured[above].rate / measured[below].rate for measured in rounds]


def print_progress(text: str) -> None:
    """Progress, for people; standard output belongs to the result."""
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
    """What the disk takes to make a page durable: part of every commit, and nothing that software can save."""
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
