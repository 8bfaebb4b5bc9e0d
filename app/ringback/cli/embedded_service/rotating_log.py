"""The log file of the service. It is read only if something is wrong, so it must not grow."""

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

LOG_BYTES_MAX: Final = 4 * 1024 * 1024
"""About 30,000 lines, and as many in the file before it."""


def rotate_log_file(path: Path) -> None:
    """Let the root logger write to a bounded file, in the format that it has. The file before it has the suffix `.1`."""
    root = logging.getLogger()
    rotating = RotatingFileHandler(path, maxBytes=LOG_BYTES_MAX, backupCount=1, encoding="utf-8")
    for handler in root.handlers:
        rotating.setFormatter(handler.formatter)
        for each in handler.filters:
            rotating.addFilter(each)
    root.handlers[:] = [rotating]
