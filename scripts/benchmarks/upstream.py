"""An MCP server whose tool returns the time of its end, on the clock that all processes share.

It serves stdio, or HTTP if its argument is a port.
"""

import sys
import time

from mcp.server import MCPServer

server = MCPServer("benchmark", log_level="WARNING")


@server.tool()
async def stamp() -> str:
    """End at once, and return the time."""
    return repr(time.monotonic())


if __name__ == "__main__":
    if len(sys.argv) > 1:
        server.run("streamable-http", port=int(sys.argv[1]))
    else:
        server.run("stdio")
