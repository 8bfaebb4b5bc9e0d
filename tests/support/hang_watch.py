"""Ends a process whose test hangs, as pytest-timeout does, with one thread for all tests of the process.

pytest-timeout starts a thread for each test and waits for its end. Beside busy processes that took 7 ms a test, because each of
14,000 tests waited twice until the processor switched threads.
"""

import importlib
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any, Final

LOOK_INTERVAL_SECONDS: Final = 5.0
"""A hang may last so much longer than its limit, which is minutes."""

EndProcess = Callable[[Any, Any], None]
END_PROCESS: Final[EndProcess] = vars(importlib.import_module("pytest_timeout"))["timeout_timer"]
"""Prints the stacks of all threads, and ends the process."""


@dataclass(frozen=True, slots=True)
class WatchedTest:
    item: Any
    settings: Any
    """pytest-timeout's, of this test."""
    ends_at: float
    """In seconds of the monotonic clock."""


class HangWatch:
    """A plugin: pytest-timeout calls its methods in the place of its own."""

    def __init__(
        self, *, look_interval_seconds: float = LOOK_INTERVAL_SECONDS, end_process: EndProcess = END_PROCESS
    ) -> None:
        self._look_interval_seconds = look_interval_seconds
        self._end_process = end_process
        self._watched: WatchedTest | None = None
        self._thread: threading.Thread | None = None

    def pytest_timeout_set_timer(self, item: Any, settings: Any) -> bool:
        self._watched = WatchedTest(item, settings, monotonic() + settings.timeout)
        if self._thread is None or not self._thread.is_alive():  # a fork has no thread of its parent
            self._thread = threading.Thread(target=self._watch, name="hang watch", daemon=True)
            self._thread.start()
        return True

    def pytest_timeout_cancel_timer(self) -> bool:
        self._watched = None
        return True

    def _watch(self) -> None:
        while True:
            sleep(self._look_interval_seconds)
            watched = self._watched
            if watched is not None and monotonic() >= watched.ends_at:
                self._end_process(watched.item, watched.settings)
                return
