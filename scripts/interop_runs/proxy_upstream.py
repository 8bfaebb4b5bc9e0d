"""The MCP server behind Ringback and a proxy: `python -m scripts.interop_runs.proxy_upstream PORT`."""

import asyncio
import sys

from mcp.server import MCPServer

server = MCPServer("stage", log_level="WARNING")


@server.tool(structured_output=False)
async def echo(text: str) -> str:
    """Returns the text."""
    return text


@server.tool(structured_output=False)
async def slow(seconds: float) -> str:
    """Takes the given seconds."""
    await asyncio.sleep(seconds)
    return "done"


@server.tool(structured_output=False)
async def large(characters: int) -> str:
    """Returns a text of the given length."""
    return "x" * characters


if __name__ == "__main__":
    server.run("streamable-http", port=int(sys.argv[1]))
