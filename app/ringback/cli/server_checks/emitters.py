"""How a run makes an event happen: a tool call at the server, or a command of this machine."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

from ringback.cli.server_checks.cases import FAILED_REQUEST, ImpossibleRun, Untestable, describe_failure
from ringback.cli.server_checks.connection import McpConnection

COMMAND_SECONDS: Final = 60.0
"""The longest run of a command that makes one event happen."""
KILL_SECONDS: Final = 5.0
"""For the end of a killed command: a process that left its group may hold the pipe."""
OUTPUT_LENGTH_MAX: Final = 200


class Emitter(Protocol):
    async def emit(self) -> None:
        """Make one event happen. Raises `ImpossibleRun` if the first attempt fails, and `Untestable` if a later one does."""
        ...


class NoEmitter:
    async def emit(self) -> None:
        raise Untestable("nothing makes an event happen: give --emit-tool or --emit")


class ToolEmitter:
    def __init__(self, connection: McpConnection, tool: str, arguments: Mapping[str, Any]) -> None:
        self._connection = connection
        self._tool = tool
        self._arguments = arguments
        self._has_emitted = False

    async def emit(self) -> None:
        if (failure := await self._call_tool()) is not None:
            problem = f"the tool {json.dumps(self._tool)} that makes an event happen failed: {failure}"
            raise Untestable(problem) if self._has_emitted else ImpossibleRun(problem)
        self._has_emitted = True

    async def _call_tool(self) -> str | None:
        """Why the call failed; None if it succeeded."""
        params = {"name": self._tool, "arguments": dict(self._arguments)}
        try:
            reply = await self._connection.request("tools/call", params)
        except FAILED_REQUEST as error:
            return describe_failure(error)
        return reply.describe() if not reply.has_result or reply.result.get("isError") else None


class CommandEmitter:
    def __init__(self, command: str) -> None:
        self._command = command
        self._has_emitted = False

    async def emit(self) -> None:
        process = await asyncio.create_subprocess_shell(
            self._command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, start_new_session=True
        )
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                output, _ = await process.communicate()
        except TimeoutError:
            raise Untestable(f"the command of --emit did not end within {COMMAND_SECONDS:g} s") from None
        finally:
            if process.returncode is None:
                await _kill(process)
        if process.returncode != 0:
            said = output.decode("utf-8", "replace").strip()[-OUTPUT_LENGTH_MAX:]
            problem = f"the command of --emit ended with {process.returncode}: {said}"
            raise Untestable(problem) if self._has_emitted else ImpossibleRun(problem)
        self._has_emitted = True


async def _kill(process: asyncio.subprocess.Process) -> None:
    """Kill the shell and what it has started: the latter holds the pipe for which `wait` waits, too."""
    with suppress(ProcessLookupError):
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):
        async with asyncio.timeout(KILL_SECONDS):
            await process.wait()
