"""Removes a test's PostgreSQL once no process uses it any more, as a process of its own.

    python postgres_keeper.py FOLDER

Each user holds a shared lock on the folder's file `users.lock`. The operating system releases it when the user dies, also by
`kill -9`; then the keeper gets the exclusive lock, stops the server, and removes the folder. It goes to the background at once.
"""

import fcntl
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

STOP_SECONDS: Final = 30.0
"""For an immediate stop, which takes some milliseconds on an idle machine."""
POLL_SECONDS: Final = 0.05


def main() -> None:
    folder = Path(sys.argv[1])
    if os.fork():
        return
    os.setsid()  # a signal to the test run's process group does not end the keeper
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    with (folder / "users.lock").open("rb") as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        stop_server(folder / "data" / "postmaster.pid")
        # Renamed first, so that a process that comes now makes a new folder.
        leaving = folder.with_name(f"{folder.name}-leaving-{os.getpid()}")
        folder.rename(leaving)
        shutil.rmtree(leaving, ignore_errors=True)


def stop_server(status: Path) -> None:
    """Stop the server as by a crash. It removes its status file at its end."""
    with suppress(FileNotFoundError, ProcessLookupError, ValueError, IndexError):
        process_id = int(status.read_text(encoding="utf-8").splitlines()[0])
        os.kill(process_id, signal.SIGQUIT)
        ends_at = time.monotonic() + STOP_SECONDS
        while status.exists() and time.monotonic() < ends_at:
            os.kill(process_id, 0)
            time.sleep(POLL_SECONDS)
        if status.exists():
            os.kill(process_id, signal.SIGKILL)


if __name__ == "__main__":
    main()
