"""The process of an MCP server that is a command. It lives as long as one connection."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from mcp.client.stdio import StdioServerParameters, stdio_client

from ringback.client.durable.direct.server import McpCommand


class CommandNotStarted(Exception):
    """The command could not be started. The text says why."""


@asynccontextmanager
async def running_command(server: McpCommand) -> AsyncGenerator[Any]:
    """Start the command, and give the streams of its messages. What it writes to stderr goes to ours."""
    parameters = StdioServerParameters(
        command=server.command,
        args=list(server.args),
        env=None if server.env is None else dict(server.env),
        cwd=server.cwd,
    )
    async with AsyncExitStack() as stack:
        try:
            streams = await stack.enter_async_context(stdio_client(parameters))
        except (OSError, ValueError) as error:
            raise CommandNotStarted(f"The command {server.command!r} cannot be started: {error}.") from error
        yield streams
