"""A FastMCP server whose tools run as tasks: `python tests/support/fastmcp_upstream.py PORT LEDGER`.

Every tool appends a line to the ledger when it starts, so that a test can count the starts.
"""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp_tasks import TasksExtension

PORT: Final = int(sys.argv[1])
LEDGER: Final = Path(sys.argv[2])

QUESTION: Final = {
    "method": "elicitation/create",
    "params": {
        "mode": "form",
        "message": "Which colour?",
        "requestedSchema": {"type": "object", "properties": {"colour": {"type": "string"}}},
    },
}


@dataclass
class Choice:
    colour: str


server = FastMCP("reports")
server.add_extension(TasksExtension(url="memory://"))


def append_to_ledger(tool: str) -> None:
    with LEDGER.open("a") as ledger:
        ledger.write(f"{tool}\n")


@server.tool(task=True)
async def build_report(seconds: float) -> str:
    """Work for some time."""
    append_to_ledger("build_report")
    await asyncio.sleep(seconds)
    return "built"


@server.tool(task=True)
async def paint(context: Context) -> Any:
    """Request input, then work."""
    if not context.input_responses:
        asked: types.InputRequests = {"colour": types.ElicitRequest.model_validate(QUESTION)}
        return types.InputRequiredResult(input_requests=asked)
    append_to_ledger("paint")
    answer = context.input_responses["colour"].model_dump()
    return f"painted {answer['content']['colour']}"


@server.tool
async def choose(context: Context) -> str:
    """Ask in the middle of the work, which FastMCP offers to legacy clients only."""
    answer = await context.elicit("Which colour?", response_type=Choice)
    return f"chose {answer.data.colour}" if answer.action == "accept" else answer.action


@server.tool
async def add(first: int, second: int) -> int:
    """Return at once."""
    return first + second


if __name__ == "__main__":
    server.run(transport="http", host="127.0.0.1", port=PORT, show_banner=False)
