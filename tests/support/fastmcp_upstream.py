"""A FastMCP server whose tools run as tasks: a server that was not made with the SDK that Ringback speaks with.

    async with serving_fastmcp(ledger) as url: ...

Every tool appends a line to the ledger when it starts, so that a test can count the starts. The server runs in the process of
the test, which has imported FastMCP anyway: a Python of its own takes two seconds of CPU to import it.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import mcp_types as types
from fastmcp import Context, FastMCP
from fastmcp_tasks import TasksExtension

from tests.support.upstreams import serving

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


@asynccontextmanager
async def serving_fastmcp(ledger: Path) -> AsyncGenerator[str]:
    """The URL of the server's endpoint."""
    app = make_server(ledger).http_app()
    async with app.router.lifespan_context(app), serving(app) as server:
        yield server.url


def make_server(ledger: Path) -> FastMCP[Any]:
    server: FastMCP[Any] = FastMCP("reports")
    server.add_extension(TasksExtension(url=f"memory://{ledger}"))  # servers of the same URL share their tasks

    def append_to_ledger(tool: str) -> None:
        with ledger.open("a") as file:
            file.write(f"{tool}\n")

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

    del build_report, paint, choose, add
    return server
