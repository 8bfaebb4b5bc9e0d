"""A server of the MCP SDK for Python 1.x with an event store: `serve_sdk1.py PORT LEDGER`. Its streams can be resumed."""

import asyncio
from typing import Any

import tools
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore


class KeptEvents(EventStore):
    """Keeps every event; its id is its number."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        self._kept.append((stream_id, message))
        return str(len(self._kept))

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        after = int(last_event_id)
        stream, _ = self._kept[after - 1]
        for number, (stream_id, message) in enumerate(self._kept[after:], start=after + 1):
            if stream_id == stream and message is not None:
                await send_callback(EventMessage(message, str(number)))
        return stream


server = FastMCP("stage", port=tools.port(), event_store=KeptEvents(), log_level="WARNING")


@server.tool(structured_output=False)
async def fast(key: str) -> str:
    """Returns at once."""
    return await tools.run(key)


@server.tool(structured_output=False)
async def slow(key: str, seconds: float) -> str:
    """Takes the given seconds."""
    return await tools.run(key, seconds)


@server.tool()
async def measure(key: str, seconds: float) -> dict[str, str]:
    """Takes the given seconds, and has an outputSchema."""
    return {"outcome": await tools.run(key, seconds)}


@server.tool(structured_output=False)
async def report(context: Context[Any, Any, Any], key: str, seconds: float) -> str:
    """Takes the given seconds, and reports progress."""
    with tools.recorded_run(key):
        for step in range(tools.REPORT_STEPS):
            await context.report_progress(step, tools.REPORT_STEPS, f"step {step}")
            await asyncio.sleep(seconds / tools.REPORT_STEPS)
        return tools.outcome_of(key)


@server.tool(structured_output=False)
async def remember(key: str, seconds: float) -> str:
    """Takes the given seconds. Its client is killed meanwhile."""
    return await tools.run(key, seconds)


@server.tool(structured_output=False)
async def survive(key: str, seconds: float) -> str:
    """Takes the given seconds. Ringback is killed meanwhile."""
    return await tools.run(key, seconds)


server.run("streamable-http")
