"""A test that hangs ends its process, and names itself."""

import threading
from typing import Any

from tests.support.hang_watch import HangWatch
from tests.support.limits import WAIT_SECONDS


class Settings:
    def __init__(self, timeout: float) -> None:
        self.timeout = timeout


def test_a_test_that_exceeds_its_limit_ends_the_process_and_one_that_has_ended_does_not() -> None:
    ended, named = threading.Event(), list[str]()

    def end_process(item: Any, settings: Any) -> None:
        named.append(f"{item} after {settings.timeout} s")
        ended.set()

    watch = HangWatch(look_interval_seconds=0.001, end_process=end_process)
    watch.pytest_timeout_set_timer("quick", Settings(3600))
    watch.pytest_timeout_cancel_timer()
    watch.pytest_timeout_set_timer("hanging", Settings(0))

    assert ended.wait(WAIT_SECONDS)
    assert named == ["hanging after 0 s"]
