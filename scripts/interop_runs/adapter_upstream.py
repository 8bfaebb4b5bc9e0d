"""The server behind Ringback for adapters: `python -m scripts.interop_runs.adapter_upstream PORT LEDGER`.

Its tools work until the row releases their key, so that an agent is killed while its call runs, however slow the machine is.
The results contain `outcome_of(key)`, which a model knows only after a tool's result has reached it.
"""

import asyncio
import sys
from pathlib import Path
from typing import Annotated, Final

from mcp.server import MCPServer
from mcp.server.mcpserver import Elicit, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import BaseModel

from scripts.interop_runs.judge import outcome_of
from scripts.interop_runs.upstream import recorded_run

POLL_SECONDS: Final = 0.02
RELEASED: Final = ".released"

server = MCPServer("stage", log_level="WARNING")


class Branch(BaseModel):
    branch: str


class Report(BaseModel):
    """The typed result of `typed`."""

    outcome: str


def release_file(ledger: Path, key: str) -> Path:
    """The file whose existence lets the tools with this key end."""
    return ledger.with_name(f"{key}{RELEASED}")


async def wait_until_released(key: str) -> None:
    while not release_file(Path(sys.argv[2]), key).exists():  # noqa: ASYNC110 - another process cannot set an event
        await asyncio.sleep(POLL_SECONDS)


@server.tool(structured_output=False)
async def slow(key: str) -> str:
    """Returns when it is released."""
    with recorded_run(key):
        await wait_until_released(key)
        return outcome_of(key)


@server.tool()
async def typed(key: str) -> Report:
    """Returns when it is released, and has an outputSchema."""
    with recorded_run(key):
        await wait_until_released(key)
        return Report(outcome=outcome_of(key))


@server.tool(structured_output=False)
async def named(key: str, config: str, runtime: str, run_manager: str, tool_context: str) -> str:
    """Returns its arguments when it is released. Frameworks have arguments of their own with these names."""
    with recorded_run(key):
        await wait_until_released(key)
        return f"{outcome_of(key)} {config} {runtime} {run_manager} {tool_context}"


@server.tool(structured_output=False)
async def broken(key: str) -> str:
    """Reports an error when it is released."""
    with recorded_run(key):
        await wait_until_released(key)
        raise ToolError(outcome_of(key))


async def ask_branch() -> Elicit[Branch]:
    return Elicit("Which branch?", Branch)


@server.tool(structured_output=False)
async def asking(key: str, branch: Annotated[Branch, Resolve(ask_branch)]) -> str:
    """Asks for a branch, and returns when it is released."""
    with recorded_run(key):
        await wait_until_released(key)
        return f"{outcome_of(key)} on {branch.branch}"


if __name__ == "__main__":
    server.run("streamable-http", port=int(sys.argv[1]))
