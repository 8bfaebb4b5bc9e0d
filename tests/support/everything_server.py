"""The reference server for testing clients, npm `@modelcontextprotocol/server-everything`: 2025-11-25, with tasks.

It needs `node` and `npm`.
"""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from ringback.upstreams.config import Isolation, UpstreamConfig, UpstreamTransport
from scripts.ports import free_port
from tests.support import npm
from tests.support.limits import WAIT_SECONDS

PACKAGE: Final = "@modelcontextprotocol/server-everything"
VERSION: Final = "2026.8.31"
RESEARCH_TOOL: Final = "simulate-research-query"
"""A task-only tool of four seconds, with an elicitation if its argument says that the topic is ambiguous."""
ELICITATION_TOOL: Final = "trigger-elicitation-request"
"""A tool that sends an elicitation; it is listed only for clients that declare elicitation."""


async def install_everything_server() -> Path:
    """The path of the server's script."""
    return await npm.install_npm_package(PACKAGE, VERSION) / "node_modules" / PACKAGE / "dist" / "index.js"


async def make_stdio_config(*, isolation: Isolation = Isolation.SHARED) -> UpstreamConfig:
    script = await install_everything_server()
    return UpstreamConfig(
        name="stage",
        transport=UpstreamTransport.STDIO,
        command="node",
        args=(str(script), "stdio"),
        max_concurrent=4,
        isolation=isolation,
    )


@asynccontextmanager
async def serving_over_http() -> AsyncGenerator[str]:
    """Start the server in its own process; its URL."""
    script, port = await install_everything_server(), free_port()
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
        async with asyncio.timeout(WAIT_SECONDS):
            while b"listening" not in (line := await process.stderr.readline()):
                assert line, "the server did not start"
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        await process.communicate()
