"""An MCP server over stdio that tests start as a child: it says who it is, waits, makes a noise, or dies, as it is asked."""

import json
import os
import signal
import sys
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server


async def list_tools(context: ServerRequestContext[Any, Any], params: Any) -> types.ListToolsResult:
    return types.ListToolsResult(
        tools=[types.Tool(name=name, input_schema={"type": "object"}) for name in ("whoami", "hold", "die", "noise")]
    )


async def call_tool(
    context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
) -> types.CallToolResult:
    match params.name:
        case "hold":
            await context.session.report_progress(1, 2, "inside")
            await anyio.sleep_forever()
        case "die":
            os.kill(os.getpid(), signal.SIGKILL)
        case "noise":
            os.write(sys.stdout.fileno(), b"this is no JSON\n")
            os.write(sys.stderr.fileno(), b"a secret of the child\n")
        case _:
            pass
    told = json.dumps({"pid": os.getpid(), "environment": dict(os.environ)})
    return types.CallToolResult(content=[types.TextContent(type="text", text=told)])


async def main() -> None:
    server = Server("child", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())


if __name__ == "__main__":
    anyio.run(main)
