"""The forced exit of a process that does not stop."""

import logging
import threading

import pytest

from ringback.server import EXIT_CODE, ExitDeadline

WAIT_SECONDS = 60.0


def test_tasks_still_running_at_the_deadline_are_logged_and_the_process_ends(caplog: pytest.LogCaptureFixture) -> None:
    codes, ended = list[int](), threading.Event()

    def exit_process(code: int) -> None:
        codes.append(code)
        ended.set()

    with ExitDeadline(seconds=0.0, exit_process=exit_process) as deadline:
        deadline.start(lambda: {"runner", "dispatcher"})
        assert ended.wait(WAIT_SECONDS)

    assert codes == [EXIT_CODE]
    (record,) = caplog.records
    assert (record.message, record.levelno) == ("service.not_stopped", logging.ERROR)
    assert record.__dict__["workers"] == "dispatcher,runner"


def test_a_process_whose_log_is_stuck_ends_all_the_same() -> None:
    ended, never = threading.Event(), threading.Event()

    def stuck() -> frozenset[str]:
        never.wait()
        return frozenset()

    with ExitDeadline(seconds=0.0, exit_process=lambda _: ended.set()) as deadline:
        deadline.start(stuck)
        assert ended.wait(WAIT_SECONDS)
    never.set()


def test_a_process_that_has_stopped_by_itself_is_let_be() -> None:
    codes: list[int] = []
    before = set(threading.enumerate())  # pytest-timeout has a timer of its own

    with ExitDeadline(seconds=WAIT_SECONDS, exit_process=codes.append) as deadline:
        deadline.start(frozenset[str])
        timers = set(threading.enumerate()) - before
    for timer in timers:
        timer.join(WAIT_SECONDS / 2)

    assert timers
    assert not any(timer.is_alive() for timer in timers)
    assert codes == []


def test_a_deadline_that_never_started_ends_without_a_log_line() -> None:
    with ExitDeadline(seconds=0.0, exit_process=lambda _: pytest.fail("no stop was requested")):
        pass
