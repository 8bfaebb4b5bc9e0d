"""An MCP server on stdio whose tool answers with the moment at which it ended, on the clock that all processes share."""

import time

from mcp.server import MCPServer

server = MCPServer("benchmark")


@server.tool()
async def stamp() -> str:
    """End at once, and say when."""
    return repr(time.monotonic())


if __name__ == "__main__":
    server.run("stdio")
