"""npm packages for tests: installed once for each machine and version, from the npm registry. Needs `node` and `npm`."""

import asyncio
import tempfile
from pathlib import Path
from typing import Final

INSTALL_SECONDS: Final = 120.0


async def install_npm_package(package: str, version: str, *more: str) -> Path:
    """The folder of the installed package. Concurrent installations do not see each other's incomplete state.

    `more` are further packages, as `name@version`, that are installed beside it.
    """
    names = [f"{package.rpartition('/')[2]}-{version}", *(each.replace("@", "-") for each in more)]
    folder = Path(tempfile.gettempdir()) / f"ringback-{'-'.join(names)}"
    if not folder.exists():
        fresh = Path(tempfile.mkdtemp(prefix=f"{folder.name}-"))
        await _npm_install(fresh, f"{package}@{version}", *more)
        _move(fresh, folder)
    return folder


def _move(fresh: Path, folder: Path) -> None:
    try:
        fresh.rename(folder)
    except OSError:
        assert folder.exists(), "another process was first, or nothing was installed"


async def _npm_install(folder: Path, *wanted: str) -> None:
    process = await asyncio.create_subprocess_exec(
        "npm", "install", "--no-audit", "--no-fund", "--silent", *wanted, cwd=folder
    )
    try:
        async with asyncio.timeout(INSTALL_SECONDS):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
