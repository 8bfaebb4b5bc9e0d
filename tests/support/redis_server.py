"""A real Redis for tests: Debian's, from the machine or, without an installation, unpacked into a cache.

async with running_redis() as url: ...
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.support.limits import WAIT_SECONDS

CACHE: Final = Path.home() / ".cache" / "ringback-tests" / "redis"
PACKAGES: Final = ("redis-server", "redis-tools", "libatomic1", "libjemalloc2", "liblzf1")
"""The server is a program of redis-tools; redis-server has the link with its name. The libraries are those that it needs
beside what every Debian has."""
_READY: Final = b"eady to accept connections"
_ADVICE: Final = (
    "Tests of RedisRequestState need redis-server. Install it (apt install redis-server), or let this test unpack Debian's: "
    "it needs apt-get, dpkg and package lists (apt-get update as root)."
)


@asynccontextmanager
async def running_redis() -> AsyncGenerator[str]:
    """The URL of an empty Redis on a socket of its own, without persistence."""
    binary, libraries = await asyncio.to_thread(_find_or_unpack)
    with tempfile.TemporaryDirectory(prefix="redis-") as folder:
        path = Path(folder) / "redis.sock"
        process = await asyncio.create_subprocess_exec(
            *(
                str(binary),
                "--port",
                "0",
                "--unixsocket",
                str(path),
                "--save",
                "",
                "--appendonly",
                "no",
                "--dir",
                folder,
            ),
            env={**os.environ, "LD_LIBRARY_PATH": libraries},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            await _wait_until_ready(process)
            yield f"unix://{path}"
        finally:
            process.kill()
            await process.communicate()


async def _wait_until_ready(process: asyncio.subprocess.Process) -> None:
    assert process.stdout is not None
    said = b""
    async with asyncio.timeout(WAIT_SECONDS):
        async for line in process.stdout:
            said += line
            if _READY in line:
                return
    raise AssertionError(f"redis-server ended: {said.decode()}")


def _find_or_unpack() -> tuple[Path, str]:
    """The server's path, and the folder of its libraries."""
    if (installed := shutil.which("redis-server")) is not None:
        return Path(installed), os.environ.get("LD_LIBRARY_PATH", "")
    if not CACHE.exists():
        _unpack()
    libraries = next(CACHE.glob("usr/lib/*/liblzf.so.1")).parent
    return CACHE / "usr" / "bin" / "redis-server", str(libraries)


def _unpack() -> None:
    """Other workers may do the same: the last step is a rename, and the first one wins."""
    CACHE.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.parent) as folder:
        downloads, root = Path(folder) / "downloads", Path(folder) / "root"
        downloads.mkdir()
        _download(downloads)
        for package in sorted(downloads.glob("*.deb")):
            subprocess.run(["dpkg", "-x", package, root], check=True, capture_output=True)
        try:
            root.rename(CACHE)
        except OSError:
            assert CACHE.exists()


def _download(folder: Path) -> None:
    try:
        if _run_apt("download", *PACKAGES, folder=folder) != 0:
            _run_apt("update", folder=folder)
            assert _run_apt("download", *PACKAGES, folder=folder) == 0, _ADVICE
    except FileNotFoundError:
        raise AssertionError(_ADVICE) from None


def _run_apt(*arguments: str, folder: Path) -> int:
    options = ("-o", "APT::Sandbox::User=root") if os.geteuid() == 0 else ()
    done = subprocess.run(["apt-get", *options, *arguments], cwd=folder, capture_output=True, check=False)
    return done.returncode
