"""An MCP server whose tool answers with the moment at which it ended, on the clock that all processes share.

On stdio, or with a port as its argument over HTTP.
"""

import sys
import time

from mcp.server import MCPServer

server = MCPServer("benchmark", log_level="WARNING")


@server.tool()
async def stamp() -> str:
    """End at once, and say when."""
    return repr(time.monotonic())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
