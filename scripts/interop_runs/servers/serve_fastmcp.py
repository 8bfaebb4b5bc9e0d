"""A server made with FastMCP, 2.x and 4.x: `serve_fastmcp.py PORT LEDGER`."""

import asyncio

import tools
from fastmcp import Context, FastMCP

server = FastMCP("stage")


@server.tool
async def fast(key: str) -> str:
    """Returns at once."""
    return await tools.run(key)


@server.tool
async def slow(key: str, seconds: float) -> str:
    """Takes the given seconds."""
    return await tools.run(key, seconds)


@server.tool
async def measure(key: str, seconds: float) -> dict[str, str]:
    """Takes the given seconds, and has an outputSchema."""
    return {"outcome": await tools.run(key, seconds)}


@server.tool
async def report(context: Context, key: str, seconds: float) -> str:
    """Takes the given seconds, and reports progress."""
    with tools.recorded_run(key):
        for step in range(tools.REPORT_STEPS):
            await context.report_progress(step, tools.REPORT_STEPS, f"step {step}")
            await asyncio.sleep(seconds / tools.REPORT_STEPS)
        return tools.outcome_of(key)


@server.tool
async def remember(key: str, seconds: float) -> str:
    """Takes the given seconds. Its client is killed meanwhile."""
    return await tools.run(key, seconds)


@server.tool
async def survive(key: str, seconds: float) -> str:
    """Takes the given seconds. Ringback is killed meanwhile."""
    return await tools.run(key, seconds)


server.run(transport="http", host="127.0.0.1", port=tools.port(), show_banner=False)
