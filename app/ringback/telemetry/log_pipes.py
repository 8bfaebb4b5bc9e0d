"""Log lines to a pipe or a socket, whose reader may stop reading: then lines are lost, and the process serves on.

A write to a full pipe would stop the event loop, and with it every call and callback, until the pipe is read.
"""

import logging
import math
import os
import select
import stat
import sys
from time import monotonic
from typing import Final, TextIO

WAIT_MILLISECONDS_MAX: Final = 100
"""How long lines wait in all, in one period, for a reader that is behind. The event loop waits with them."""
PERIOD_SECONDS: Final = 10.0
"""Begins with a wait. Once its waits add up to that, lines are lost without a wait until it is over."""

log = logging.getLogger(__name__)


def create_log_handler(stream: TextIO) -> logging.Handler:
    """A handler of this stream. If it is a pipe or a socket, it blocks for `WAIT_MILLISECONDS_MAX` at most in each period."""
    if sys.platform == "win32" or not _is_pipe(stream):
        return logging.StreamHandler(stream)
    return PipeHandler(stream)


class PipeHandler(logging.Handler):
    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        log.setLevel(logging.WARNING)  # whatever the service's level is: lines of the audit log may be lost, too
        self._descriptor = stream.fileno()
        self._encoding = stream.encoding
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLOUT)
        self._period_ends_at = 0.0
        self._wait_left = 0.0
        """Milliseconds of this period."""
        self._lost_lines = 0
        self._is_line_open = False
        """The beginning of a lost line was written."""

    def emit(self, record: logging.LogRecord) -> None:
        if self._lost_lines and self._poll.poll(0):
            lost, self._lost_lines = self._lost_lines, 0
            log.warning("log.lines_lost", extra={"lines": lost})
        try:
            line = f"{self.format(record)}\n".encode(self._encoding, "backslashreplace")
            if not self._write(line):
                self._lost_lines += 1
        except Exception:  # noqa: BLE001 - the convention of handlers: an error of a log line ends nothing
            self.handleError(record)

    def _write(self, line: bytes) -> bool:
        """Whether the whole line was written. A pipe that is not full takes `PIPE_BUF` bytes without blocking."""
        if self._is_line_open:
            line = b"\n" + line
        for start in range(0, len(line), select.PIPE_BUF):
            if not self._wait_until_writable():
                return False
            os.write(self._descriptor, line[start : start + select.PIPE_BUF])
            self._is_line_open = True
        self._is_line_open = False
        return True

    def _wait_until_writable(self) -> bool:
        if self._poll.poll(0):
            return True
        began_at = monotonic()  # not the record's time: a clock that is set back would not end the period
        if began_at >= self._period_ends_at:
            self._period_ends_at = began_at + PERIOD_SECONDS
            self._wait_left = WAIT_MILLISECONDS_MAX
        if self._wait_left <= 0:
            return False
        is_writable = bool(self._poll.poll(math.ceil(self._wait_left)))
        self._wait_left -= 1000 * (monotonic() - began_at)
        return is_writable


def _is_pipe(stream: TextIO) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError, AttributeError):  # a stream without a descriptor, or none
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
