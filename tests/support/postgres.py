"""A real PostgreSQL for tests: one server for the whole test run.

The first process that needs it starts it, and the other workers of the run find it by the run's id. It runs until the last
of them has ended; `postgres_keeper` sees to that. `RINGBACK_TEST_POSTGRES_URL` names a server to use instead, by the URL of any
database and of a user who may create databases.
"""

import asyncio
import atexit
import fcntl
import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Final

from tests.support.postgres_instance import FAST, PostgresAddress, PostgresInstance

KEEPER: Final = Path(__file__).with_name("postgres_keeper.py")
URL_VARIABLE: Final = "RINGBACK_TEST_POSTGRES_URL"
RUN_ID_VARIABLE: Final = "PYTEST_XDIST_TESTRUNUID"
"""pytest-xdist and `tests.support.forked_workers` set it to the same value in all workers of a run."""
MEMORY_VARIABLE: Final = "PYTEST_DEBUG_TEMPROOT"
"""The folder of pytest's temporary files, which scripts/test sets to one in memory."""
RUN_ID_CHARACTERS: Final = 16
"""Of 32: the path of a Unix socket is at most 107 bytes long."""
CREATED: Final = "created"
FOLDER_MODE: Final = 0o711
"""PostgreSQL's user, another one under root, passes through the folder."""


@functools.cache
def shared_postgres() -> PostgresAddress:
    """The test run's server, which this process starts if no worker has."""
    if url := os.environ.get(URL_VARIABLE):
        return PostgresAddress(socket_url=url, network_url=url)
    folder = _shared_folder()
    atexit.register(use_folder(folder).close)
    address = folder / "address.json"
    with (folder / "start.lock").open("ab") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not address.exists():
            server = start_server(folder, FAST, copy_to=folder / CREATED)
            server.leave_running()
            address.write_text(json.dumps(asdict(server.address)), encoding="utf-8")
    return PostgresAddress(**json.loads(address.read_text(encoding="utf-8")))


@functools.cache
def _shared_folder() -> Path:
    run = os.environ.get(RUN_ID_VARIABLE) or f"{os.getpid()}-{os.urandom(8).hex()}"
    parent = os.environ.get(MEMORY_VARIABLE) or tempfile.gettempdir()
    return Path(parent) / f"ringback-postgres-{run[:RUN_ID_CHARACTERS]}"


def find_created_server() -> Path | None:
    """A copy of the shared server from before its first start; None if it is not one of this test run."""
    if URL_VARIABLE in os.environ:
        return None
    shared_postgres()
    return _shared_folder() / CREATED


@asynccontextmanager
async def running_postgres(**settings: str) -> AsyncGenerator[PostgresInstance]:
    """A server of the test's own, to be stopped and started again; it is durable unless the settings say otherwise."""
    folder = Path(tempfile.mkdtemp(prefix="ringback-postgres-"))
    with use_folder(folder):
        server = await asyncio.to_thread(start_server, folder, settings, copied=find_created_server())
        try:
            yield server
        finally:
            await asyncio.to_thread(server.stop)


def start_server(
    folder: Path, settings: Mapping[str, str], *, copied: Path | None = None, copy_to: Path | None = None
) -> PostgresInstance:
    """Start a server in a folder that this process uses, and the keeper of the folder.

    Its data are copied from those of a server that was not started yet, or are copied for other servers before the start.
    """
    subprocess.run([sys.executable, "-I", KEEPER, folder], check=True)
    server = PostgresInstance(folder, settings=settings)
    server.create(copied=copied)
    if copy_to is not None:
        server.copy_to(copy_to)
    server.start()
    return server


def use_folder(folder: Path) -> IO[bytes]:
    """Use the folder until the returned file is closed or this process ends. Its keeper removes it after the last user."""
    while True:
        folder.mkdir(exist_ok=True)
        folder.chmod(FOLDER_MODE)
        users = (folder / "users.lock").open("ab")
        fcntl.flock(users, fcntl.LOCK_SH)  # waits for a keeper that is removing the folder
        if _is_in_place(users, folder / "users.lock"):
            return users
        users.close()


def _is_in_place(file: IO[bytes], path: Path) -> bool:
    return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())
