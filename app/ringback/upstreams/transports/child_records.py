"""Records of the child processes that the service has started: a small file for each, beside the database.

When a service is killed, the kernel kills its children (`child_process`) but not their children, for example the server that
npx starts. The next start of the service kills them. It kills a process only if the boot, the recorded session, and the unique
mark in the environment of the process are those of the record, so a reused process id is safe. A process that left the session
did so on purpose and is not killed.

Linux only, because it reads /proc. On other systems nothing is recorded, and a stop ends only the process group.
"""

import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

log = logging.getLogger(__name__)

MARK_VARIABLE: Final = "RINGBACK_CHILD"
"""Set for each child; its descendants inherit it."""
_PROC: Final = Path("/proc")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_RECORD_BYTES_MAX: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRecord:
    pid: int
    """Also the id of its session and its process group."""
    started: int
    """Clock ticks after the boot (field 22 of /proc/PID/stat); 0 if the child exited before it was recorded."""
    boot_id: str
    mark: str


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    state: str
    """R running, S sleeping, T stopped by a signal, Z zombie, …"""
    session: int
    started: int


class ChildRecords:
    def __init__(self, folder: Path | None) -> None:
        """Without a folder no record outlives this process. Only one process at a time may use a folder."""
        self._folder = folder

    def add(self, pid: int, mark: str) -> ChildRecord:
        status = read_process_status(pid)
        record = ChildRecord(pid=pid, started=status.started if status else 0, boot_id=read_boot_id(), mark=mark)
        if self._folder is not None and record.boot_id:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            _write_record(_record_path(self._folder, record), record)
        return record

    def remove(self, record: ChildRecord) -> None:
        """Remove a record. One that remains is harmless: the next start finds no such process and removes it."""
        if self._folder is not None:
            try:
                _record_path(self._folder, record).unlink(missing_ok=True)
            except OSError as error:
                log.warning("upstream.child_record_not_removed", extra={"pid": record.pid, "reason": error.strerror})

    def kill_leftovers(self) -> int:
        """Kill the processes that an earlier service left; returns their number. Blocks for milliseconds: use a thread."""
        ended = 0
        for file in sorted(self._folder.glob("*.json")) if self._folder is not None and self._folder.is_dir() else ():
            record = _read_record(file)
            if record is not None:
                ended += signal_processes(record)
            file.unlink(missing_ok=True)
        if ended:
            log.warning("upstream.orphans_ended", extra={"processes": ended})
        return ended


def _write_record(path: Path, record: ChildRecord) -> None:
    """Only the user reads it, also in a folder that was made with other rights."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(record), file)


def signal_processes(record: ChildRecord, number: signal.Signals = signal.SIGKILL) -> int:
    """Send the signal to every remaining process of this child; returns their number."""
    return sum(_signal_if_owned(record, pid, number) for pid in _iter_pids()) if record.boot_id else 0


def read_process_status(pid: int) -> ProcessStatus | None:
    """None if there is no such process or no /proc."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text[text.rfind(")") + 2 :].split()  # the process name before it may contain blanks and brackets
    return ProcessStatus(state=fields[0], session=int(fields[3]), started=int(fields[19]))


def read_boot_id() -> str:
    """The id of this boot of the machine; empty if the system has none, and then nothing is recorded."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _signal_if_owned(record: ChildRecord, pid: int, number: signal.Signals) -> bool:
    """Use a pidfd, so that the signal reaches the checked process even if its id is reused."""
    if sys.platform != "linux" or (status := read_process_status(pid)) is None or status.session != record.pid:
        return False
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not _is_owned(record, pid):
            return False
        signal.pidfd_send_signal(handle, number)
    except OSError:
        return False
    finally:
        os.close(handle)
    return True


def _is_owned(record: ChildRecord, pid: int) -> bool:
    status = read_process_status(pid)
    if status is None or status.session != record.pid or status.state == "Z" or record.boot_id != read_boot_id():
        return False
    if pid == record.pid and record.started and status.started != record.started:
        return False
    try:
        environment = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return False
    return f"{MARK_VARIABLE}={record.mark}".encode() in environment.split(b"\0")


def _iter_pids() -> Iterator[int]:
    with contextlib.suppress(OSError):
        yield from (int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit())


def _record_path(folder: Path, record: ChildRecord) -> Path:
    return folder / f"{record.pid}.json"


def _read_record(file: Path) -> ChildRecord | None:
    try:
        with file.open("rb") as opened:
            return ChildRecord(**json.loads(opened.read(_RECORD_BYTES_MAX)))
    except (OSError, ValueError, TypeError):
        log.warning("upstream.child_record_not_read")
        return None
