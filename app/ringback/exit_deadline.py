"""The last resort of a process that was told to stop: it ends at its deadline, whatever still holds it.

Each worker bounds its own end. What cannot be bounded from inside (a disk that answers no write, a child process that cannot be
killed, an event loop that a bug blocks, a log that nobody reads) is bounded here, from a thread of its own. Nothing
acknowledged is lost by that, as nothing is by a `kill -9`: what was acknowledged is on disk, and leases are voided at the next
start.
"""

import logging
import os
import threading
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Final, Self

log = logging.getLogger(__name__)

LAST_LOG_SECONDS: Final = 1.0
"""For the one last line: whatever holds the process may hold its log, too."""
EXIT_CODE: Final = 1


class ExitDeadline:
    """Ends the process `seconds` after `start`, unless the deadline was left before."""

    def __init__(self, *, seconds: float, exit_process: Callable[[int], object] = os._exit) -> None:
        self._exit_process = exit_process
        self._seconds = seconds
        self._running_workers: Callable[[], Collection[str]] = frozenset[str]
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def start(self, running_workers: Callable[[], Collection[str]]) -> None:
        """`running` names what has not stopped yet; it is called from another thread."""
        self._running_workers = running_workers
        self._timer.start()

    def _expire(self) -> None:
        log_thread = threading.Thread(target=self._log_running_workers, daemon=True)
        log_thread.start()
        log_thread.join(LAST_LOG_SECONDS)
        self._exit_process(EXIT_CODE)

    def _log_running_workers(self) -> None:
        running = ",".join(sorted(self._running_workers())) or "none"
        log.error("service.not_stopped", extra={"workers": running, "after_seconds": self._seconds})
