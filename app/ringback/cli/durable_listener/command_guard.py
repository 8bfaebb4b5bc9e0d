"""Ends the running commands of a listener that was killed: a process beside the listener, started by `running_commands`.

The process runs this file without the package, so it imports only the standard library. Each line of its standard input is
`+ID` or `-ID`: the process group of a command begins or ends to run. The end of the input is the end of the listener, also by
SIGKILL.
"""

import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

LOOK_AGAIN_SECONDS: Final = 0.02
"""The system reports no end of a process group, so it is polled: each poll is one system call."""
AFTER_KILL_SECONDS: Final = 1.0
"""A killed process ends within milliseconds. A zombie that no one reaps stays, and is not waited for."""


def signal_group(group_id: int, number: signal.Signals) -> None:
    """Send the signal, unless the group has gone or belongs to another user."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group_id, number)


def is_group_running(group_id: int) -> bool:
    try:
        os.killpg(group_id, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # a command of another user, by sudo
        return True
    return True


def read_running_groups(lines: Iterable[str]) -> set[int]:
    """The groups that run when the input ends."""
    running: set[int] = set()
    for line in lines:
        change = running.add if line.startswith("+") else running.discard
        change(int(line[1:]))
    return running


def end_groups(group_ids: set[int], grace_seconds: float) -> None:
    """Ask the groups to end, and kill what still runs after the grace time."""
    for number, seconds in ((signal.SIGTERM, grace_seconds), (signal.SIGKILL, AFTER_KILL_SECONDS)):
        running = {group_id for group_id in group_ids if is_group_running(group_id)}
        for group_id in running:
            signal_group(group_id, number)
        _wait_until_gone(running, seconds)


def _wait_until_gone(group_ids: set[int], seconds: float) -> None:
    limit = time.monotonic() + seconds  # the clock of this process: it has no other
    while time.monotonic() < limit and any(map(is_group_running, group_ids)):
        time.sleep(LOOK_AGAIN_SECONDS)


def main() -> None:
    # A supervisor may send SIGTERM to all processes of the listener. This one ends when the listener has ended.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    end_groups(read_running_groups(sys.stdin), float(sys.argv[1]))


if __name__ == "__main__":
    main()
