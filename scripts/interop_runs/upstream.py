"""The server behind Ringback: `python -m scripts.interop_runs.upstream PORT LEDGER`.

Every tool gets a key, which names its run, and returns `outcome_of(key)`. A client knows this text only after the tool's result
has reached it. The ledger is a file with one JSON line for each start and each end.
"""

import asyncio
import json
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from pydantic import BaseModel

from scripts.interop_runs.judge import outcome_of

REPORT_STEPS: Final = 6

server = MCPServer("stage", log_level="WARNING")


class Measured(BaseModel):
    """The typed result of `measure`: clients that make objects from an outputSchema make them from this one."""

    outcome: str
    seconds: float


@server.tool(structured_output=False)
async def fast(key: str) -> str:
    """Returns at once."""
    with recorded_run(key):
        return outcome_of(key)


@server.tool(structured_output=False)
async def slow(key: str, seconds: float) -> str:
    """Takes the given seconds."""
    with recorded_run(key):
        await asyncio.sleep(seconds)
        return outcome_of(key)


@server.tool()
async def measure(key: str, seconds: float) -> Measured:
    """Takes the given seconds, and has an outputSchema."""
    with recorded_run(key):
        await asyncio.sleep(seconds)
        return Measured(outcome=outcome_of(key), seconds=seconds)


@server.tool(structured_output=False)
async def report(context: Context, key: str, seconds: float) -> str:
    """Takes the given seconds, and reports progress."""
    with recorded_run(key):
        for step in range(REPORT_STEPS):
            await context.report_progress(step, REPORT_STEPS, f"step {step}")
            await asyncio.sleep(seconds / REPORT_STEPS)
        return outcome_of(key)


@server.tool(structured_output=False)
async def remember(key: str, seconds: float) -> str:
    """Takes the given seconds. Its client is killed meanwhile."""
    with recorded_run(key):
        await asyncio.sleep(seconds)
        return outcome_of(key)


@server.tool(structured_output=False)
async def survive(key: str, seconds: float) -> str:
    """Takes the given seconds. Ringback is killed meanwhile."""
    with recorded_run(key):
        await asyncio.sleep(seconds)
        return outcome_of(key)


@contextmanager
def recorded_run(key: str) -> Generator[None]:
    record(key, "started")
    try:
        yield
    except BaseException:
        record(key, "cancelled")
        raise
    record(key, "finished")


def record(key: str, what: str) -> None:
    with Path(sys.argv[2]).open("a", encoding="utf-8") as ledger:
        ledger.write(json.dumps({"key": key, "what": what}) + "\n")


if __name__ == "__main__":
    server.run("streamable-http", port=int(sys.argv[1]))
