"""A pytest plugin that prints where the CPU time of a test run goes. Wall time says little on a machine that is shared.

    scripts/test --profile

CPU time of a test includes that of the processes that it started, and that a fork server started for it. A process that
outlives its parent is not counted. The shared PostgreSQL server is a child of the worker that first needed it, so its time
counts for all tests of that worker.
"""

import os
import resource
import time
from collections import defaultdict
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")
_LINES: Final = 40
"""The number of lines of each table: what lies below them is not worth a mend."""
_SPENT: Final = pytest.StashKey["Spent"]()


def _make_table() -> defaultdict[str, float]:
    return defaultdict(float)


@dataclass(slots=True)
class Spent:
    """Seconds of CPU of one worker, or of all of them."""

    by_stage: defaultdict[str, float] = field(default_factory=_make_table)
    by_folder: defaultdict[str, float] = field(default_factory=_make_table)
    tests_by_folder: defaultdict[str, float] = field(default_factory=_make_table)
    by_file: defaultdict[str, float] = field(default_factory=_make_table)
    by_test: defaultdict[str, float] = field(default_factory=_make_table)
    by_fixture: defaultdict[str, float] = field(default_factory=_make_table)
    tests_by_file: defaultdict[str, float] = field(default_factory=_make_table)

    def as_json(self) -> dict[str, dict[str, float]]:
        return {name: dict(getattr(self, name)) for name in self.__slots__}

    def add(self, other: Mapping[str, Mapping[str, float]]) -> None:
        for table, seconds in other.items():
            for name, spent in seconds.items():
                getattr(self, table)[name] += spent


def pytest_configure(config: pytest.Config) -> None:
    def begin() -> None:
        config.stash[_SPENT] = Spent()

    begin()
    os.register_at_fork(after_in_child=begin)  # what a worker has from the process that collected is not its own


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    spent = session.config.stash[_SPENT]
    spent.by_stage["start"] += own_seconds()
    before = own_seconds()
    try:
        return (yield)
    finally:
        spent.by_stage["collection"] += own_seconds() - before


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    spent = item.config.stash[_SPENT]
    others, own = children_seconds(), own_seconds()  # in this order, because to look for processes takes 2 ms itself
    try:
        return (yield)
    finally:
        own, others = own_seconds() - own, children_seconds() - others
        name = item.nodeid.partition("::")[0]
        folder = name.rpartition("/")[0]
        spent.by_stage["tests"] += own
        spent.by_stage["processes that tests started"] += others
        spent.by_folder[folder] += own + others
        spent.tests_by_folder[folder] += 1
        spent.by_file[name] += own + others
        spent.tests_by_file[name] += 1
        spent.by_test[item.nodeid.partition("[")[0]] += own + others


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    spent = request.config.stash[_SPENT]
    before = own_seconds()
    try:
        return (yield)
    finally:
        spent.by_fixture[f"{fixturedef.baseid or '.'}::{fixturedef.argname}"] += own_seconds() - before


def pytest_sessionfinish(session: pytest.Session) -> None:
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["cpu_profile"] = session.config.stash[_SPENT].as_json()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what a worker spent."""
    node.config.stash[_SPENT].add(getattr(node, "workeroutput", {}).get("cpu_profile", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    spent = config.stash[_SPENT]
    _write_table(terminalreporter, "by stage", spent.by_stage)
    _write_table(terminalreporter, "by folder, with the number of tests", spent.by_folder, spent.tests_by_folder)
    _write_table(terminalreporter, "by file, with the number of tests", spent.by_file, spent.tests_by_file)
    _write_table(terminalreporter, "by test function", spent.by_test)
    _write_table(terminalreporter, "by fixture, without the fixtures that it requests", spent.by_fixture)


def _write_table(
    reporter: pytest.TerminalReporter,
    title: str,
    seconds: Mapping[str, float],
    tests: Mapping[str, float] | None = None,
) -> None:
    reporter.section(f"seconds of CPU {title}")
    for name, spent in sorted(seconds.items(), key=lambda each: -each[1])[:_LINES]:
        reporter.write_line(f"{spent:8.2f} {'' if tests is None else f'{tests[name]:5.0f} '}{name}")
    reporter.write_line(f"{sum(seconds.values()):8.2f} in all")


def own_seconds() -> float:
    return time.process_time()


def children_seconds() -> float:
    """The CPU time of all processes that descend from this one, in steps of 10 ms for those that still run."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return ended.ru_utime + ended.ru_stime + sum(_seconds_of_tree(child) for child in _children_of(os.getpid()))


def _seconds_of_tree(process_id: int) -> float:
    try:
        fields = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    # utime, stime, and cutime and cstime of its ended children: fields 14 to 17, counted from 1; the second ends with ")".
    own = sum(int(ticks) for ticks in fields[11:15]) / _TICKS_PER_SECOND
    return own + sum(_seconds_of_tree(child) for child in _children_of(process_id))


def _children_of(process_id: int) -> list[int]:
    children: list[int] = []
    for task in _entries(Path(f"/proc/{process_id}/task")):
        try:
            listed = (task / "children").read_text(encoding="utf-8")
        except (FileNotFoundError, ProcessLookupError):
            continue
        children += [int(child) for child in listed.split()]
    return children


def _entries(folder: Path) -> list[Path]:
    """An empty list if the process has ended meanwhile."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []
