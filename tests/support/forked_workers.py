"""A pytest plugin that runs the tests in processes that are forked after the collection.

    python -m pytest -p tests.support.forked_workers --forks 4

A worker of pytest-xdist starts as a new Python: it imports the service and collects 14,000 tests, which takes 13 s of CPU
before its first test. A fork has both. A worker runs one file after another, so that fixtures of a module are made once, and
the tests of `SLOW_FILES` come first, one by one. A worker that ends in the middle of a test fails that test, and a new fork
goes on with the others.

The workers share one fork server of `tests.support.processes`, which takes 4 s of CPU to start. If all tests run, it starts on
another core while the tests are collected.
"""

import atexit
import importlib
import multiprocessing
import os
import random
import secrets
import signal
import sys
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, islice
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection, wait
from types import SimpleNamespace
from typing import Any, Final

import pytest

from tests.support.postgres import RUN_ID_VARIABLE

SLOW_FILES: Final = frozenset(
    {
        *(
            "test_soak.py",
            "test_chaos.py",
            "test_kill_behind_bridge.py",
            "test_kill_at_random.py",
            "test_own_service.py",
        ),
        *("test_installs.py", "test_benchmarks.py", "test_exit_deadline.py", "test_openapi_requests.py"),
        *("test_cut_connections.py", "test_backup_and_restore.py", "test_kill_resumable_calls.py", "test_simulate.py"),
        *("test_ai_sdk_events.py", "test_mcp_remote.py", "test_everything_server.py"),
    }
)
"""Files with tests that take longer than some seconds. Started last, such a test leaves the other cores idle."""
PROCESSES: Final = "tests.support.processes"
"""The module that chooses what the fork server imports."""
LINES_SHOWN_MAX: Final = 12
"""The last ones of a failure that are shown at once."""
PARTS_PER_WORKER_MIN: Final = 4
RESTARTS_MAX: Final = 8
"""More workers than these end in the middle of a test only if something is wrong with all of them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, help="run the tests in so many processes, forked after collection")


def pytest_configure(config: pytest.Config) -> None:
    forks: int = config.option.forks
    if forks > 1 and not config.option.collectonly and config.option.numprocesses is None:
        config.pluginmanager.register(ForkedWorkers(config, forks), "forked-workers")
        if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
            importlib.import_module(PROCESSES)
            forkserver.ensure_running()


def divide(names: Sequence[str], forks: int) -> Iterator[list[int]]:
    """The parts that a worker takes at once, as indexes of the tests, by the names of the tests' files.

    A part is a file, or less of a file that has so many of the tests that the other workers would wait for its end.
    """
    tests_max = max(1, len(names) // (PARTS_PER_WORKER_MIN * forks))
    slow_first = sorted(range(len(names)), key=lambda index: names[index] not in SLOW_FILES)
    for name, indexes in groupby(slow_first, names.__getitem__):
        size = 1 if name in SLOW_FILES else tests_max
        while part := list(islice(indexes, size)):
            yield part


@dataclass(slots=True, eq=False)
class Worker:
    number: int
    process_id: int
    connection: Connection
    taken: deque[int] = field(default_factory=deque[int])
    """The tests that it has and that have not ended."""
    has_ended: bool = False


class ForkedWorkers:
    """Deals the tests to its workers and reports what they report."""

    def __init__(self, config: pytest.Config, forks: int) -> None:
        self._config = config
        self._forks = forks
        self._workers: list[Worker] = []
        self._parts: deque[list[int]] = deque()
        self._restarts = 0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed:
            return None  # pytest itself refuses to run after an error of the collection
        os.environ.setdefault(RUN_ID_VARIABLE, secrets.token_hex())
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        reporter.showfspath = False
        if PROCESSES in sys.modules:
            forkserver.ensure_running()
        folders: Any = vars(self._config)["_tmp_path_factory"]
        folders.getbasetemp()  # the workers' folders are in it
        self._parts.extend(divide([item.path.name for item in session.items], self._forks))
        try:
            for number in range(min(self._forks, len(self._parts))):
                self._fork(session, number)
            while running := [each for each in self._workers if not each.has_ended]:
                self._handle_messages(session, running)
        finally:
            self._end_workers()
        return True

    def _fork(self, session: pytest.Session, number: int) -> None:
        ours, theirs = multiprocessing.Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        process_id = os.fork()
        if process_id == 0:
            for connection in (ours, *(each.connection for each in self._workers)):
                connection.close()
            run_worker(session, number, theirs)
        theirs.close()
        self._workers.append(Worker(number, process_id, ours))

    def _handle_messages(self, session: pytest.Session, running: Sequence[Worker]) -> None:
        ready = wait([each.connection for each in running])
        for worker in (each for each in running if each.connection in ready):
            try:
                kind, content = worker.connection.recv()
            except (EOFError, ConnectionResetError):
                self._replace(session, worker)
                continue
            if kind == "more":
                part = self._parts.popleft() if self._parts else []
                worker.taken.extend(part)
                worker.connection.send(part)
            elif kind == "reports":
                self._report(session.items[worker.taken.popleft()], content)
            else:
                worker.has_ended = True
                self._config.hook.pytest_testnodedown(
                    node=SimpleNamespace(config=self._config, workeroutput=content), error=None
                )
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)

    def _report(self, item: pytest.Item, reports: Iterable[dict[str, Any]]) -> None:
        hook = self._config.hook
        for data in reports:
            report = hook.pytest_report_from_serializable(config=self._config, data=data)
            hook.pytest_runtest_logreport(report=report)
            if report.failed:  # a run takes minutes, with --deep an hour, and shows the rest at its end
                lines = [
                    f"\n{report.when} failed: {report.nodeid}",
                    *report.longreprtext.splitlines()[-LINES_SHOWN_MAX:],
                ]
                self._config.get_terminal_writer().line("\n".join(lines))
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _replace(self, session: pytest.Session, worker: Worker) -> None:
        """Fail the test that the dead worker ran, and let a new one go on with the others."""
        worker.has_ended = True
        self._restarts += 1
        if worker.taken:
            item = session.items[worker.taken.popleft()]
            reason = f"the worker ended in the middle of {item.nodeid}"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", reason, "call")
            self._config.hook.pytest_runtest_logreport(report=report)
        if worker.taken:
            self._parts.appendleft(list(worker.taken))
        if self._restarts > RESTARTS_MAX:
            raise session.Failed(f"{self._restarts} workers ended in the middle of a test")
        self._fork(session, worker.number + self._forks)

    def _end_workers(self) -> None:
        for worker in self._workers:
            worker.connection.close()
            if not worker.has_ended:
                os.kill(worker.process_id, signal.SIGKILL)
            os.waitpid(worker.process_id, 0)


def run_worker(session: pytest.Session, number: int, connection: Connection) -> None:
    """Run tests in this process, a fork, until there are no more. The process ends with it."""
    config = session.config
    result = 1
    try:
        become_worker(config, number, connection)
        for item, following in take_items(session, connection):
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        config.hook.pytest_sessionfinish(session=session, exitstatus=session.exitstatus)
        connection.send(("ended", vars(config)["workeroutput"]))
        result = 0
    finally:
        vars(atexit)["_run_exitfuncs"]()  # otherwise they run at the end of the interpreter, which os._exit leaves out
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(result)


def become_worker(config: pytest.Config, number: int, connection: Connection) -> None:
    """Undo what the fork shares with the process that collected: its terminal, its captured output and its folder."""
    own_captured_output(config)
    reporter: Any = config.pluginmanager.unregister(name="terminalreporter")
    # pytest-timeout prints the stacks of a test that hangs on the reporter's writer.
    config.pluginmanager.register(SimpleNamespace(_tw=reporter._tw), "terminalreporter")
    config.pluginmanager.unregister(name="forked-workers")
    config.pluginmanager.register(ReportSender(config, connection))
    # As in a worker of pytest-xdist: pytest's own plugins then write no cache.
    vars(config).update(workerinput={"workerid": f"fork{number}"}, workeroutput={})
    folders: Any = vars(config)["_tmp_path_factory"]
    folders._given_basetemp, folders._basetemp = folders.getbasetemp() / f"worker{number}", None
    server: Any = vars(forkserver)["_forkserver"]
    if server._forkserver_pid is not None:  # is no child of this process, and cannot be waited for
        server.ensure_running = resource_tracker.ensure_running
    random.seed()


def own_captured_output(config: pytest.Config) -> None:
    """Capture into files of this process. The streams stay the same objects, because modules have them as defaults."""
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    capture.suspend_global_capture()
    for stream in (capture._global_capturing.out, capture._global_capturing.err):
        if hasattr(stream, "tmpfile"):
            with tempfile.TemporaryFile() as own:
                os.dup2(own.fileno(), stream.tmpfile.fileno(), inheritable=False)


def take_items(session: pytest.Session, connection: Connection) -> Iterator[tuple[pytest.Item, pytest.Item | None]]:
    """Each test with the next one, which decides which fixtures end."""
    taken: deque[int] = deque()
    has_more = True
    while True:
        while has_more and len(taken) < 2:
            connection.send(("more", None))
            part: list[int] = connection.recv()
            taken.extend(part)
            has_more = bool(part)
        if not taken:
            return
        item = session.items[taken.popleft()]
        yield item, session.items[taken[0]] if taken else None


class ReportSender:
    """Sends the reports of a test together, once it has ended: of one that passed, only that of its call.

    The three reports of 17,000 tests take seconds of CPU on both sides, and pytest counts and prints calls only.
    """

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection
        self._reports: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports.append(report)

    def pytest_runtest_logfinish(self) -> None:
        reports, self._reports = self._reports, []
        if all(each.passed for each in reports) and self._config.option.durations is None:
            reports = [each for each in reports if each.when == "call"]
        convert = self._config.hook.pytest_report_to_serializable
        self._connection.send(("reports", [convert(config=self._config, report=each) for each in reports]))
