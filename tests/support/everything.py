"""The reference server for testing clients, npm `@modelcontextprotocol/server-everything`: 2025-11-25, with tasks.

It is installed once for each machine and version, from the npm registry, and needs `node` and `npm`.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from ringback.runner.config import Isolation, Transport, UpstreamConfig
from tests.support.upstreams import free_port

PACKAGE: Final = "@modelcontextprotocol/server-everything"
VERSION: Final = "2026.8.31"
INSTALL_SECONDS: Final = 120.0
START_SECONDS: Final = 30.0
RESEARCH: Final = "simulate-research-query"
"""A tool that must be called as a task; it takes four seconds, and has a question if it is told that its topic is ambiguous."""


async def installed() -> Path:
    """The server's script. Two that install it at once do not see each other's half."""
    folder = Path(tempfile.gettempdir()) / f"ringback-everything-{VERSION}"
    if not folder.exists():
        fresh = Path(tempfile.mkdtemp(prefix=f"{folder.name}-"))
        await _npm_install(fresh)
        _move(fresh, folder)
    return folder / "node_modules" / PACKAGE / "dist" / "index.js"


async def over_stdio(*, isolation: Isolation = Isolation.SHARED) -> UpstreamConfig:
    script = await installed()
    return UpstreamConfig(
        name="stage",
        transport=Transport.STDIO,
        command="node",
        args=(str(script), "stdio"),
        max_concurrent=4,
        isolation=isolation,
    )


@asynccontextmanager
async def over_http() -> AsyncGenerator[str]:
    """The URL of a server of its own, in a process of its own."""
    script, port = await installed(), free_port()
    process = await asyncio.create_subprocess_exec(
        "node",
        str(script),
        "streamableHttp",
        env=os.environ | {"PORT": str(port)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            while b"listening" not in (line := await process.stderr.readline()):
                assert line, "the server did not start"
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.communicate()


def _move(fresh: Path, folder: Path) -> None:
    try:
        fresh.rename(folder)
    except OSError:
        assert folder.exists(), "somebody else was first, or nothing was installed"


async def _npm_install(folder: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        "npm", "install", "--no-audit", "--no-fund", "--silent", f"{PACKAGE}@{VERSION}", cwd=folder
    )
    try:
        async with asyncio.timeout(INSTALL_SECONDS):
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
