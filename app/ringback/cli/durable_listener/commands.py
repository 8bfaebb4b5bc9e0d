"""Runs a shell command for each callback."""

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from ringback.cli.durable_listener.handlers import Failed, Handled, HandlerOutcome, ReceivedCallback, Refused

EXIT_REFUSED: Final = 65
"""Exit code with which a command refuses a callback for good: EX_DATAERR of sysexits.h."""
TERMINATION_SECONDS: Final = 10.0
"""From SIGTERM to SIGKILL: the grace time of common supervisors."""
_GUARD_SCRIPT: Final = """
IFS= read -r body
exec 3<&0
( read -r _ <&3; kill -TERM 0 ) &
guard=$!
printf '%s' "$body" | sh -c "$1" 3<&-
code=$?
kill "$guard" 2>/dev/null
exit "$code"
"""
"""Runs the command $1 with the first line of standard input. The listener keeps standard input open, so its end is the end of
the listener, also by SIGKILL. Then the script ends the command: the next listener runs it again, and two runs at once could
resume one session twice."""


class CommandHandler:
    """Runs `command` in a shell, with the callback's body on standard input and its ids in the environment.

    Exit code 0 means handled, 65 refused for good, any other that the command is to be run again. A command that runs for more
    than `timeout_seconds` is terminated, with the processes that it started. So is one whose listener is killed.
    """

    def __init__(self, command: str, *, timeout_seconds: float, environment: Mapping[str, str]) -> None:
        self._command = command
        self._timeout_seconds = timeout_seconds
        self._environment = environment

    async def handle_callback(self, received: ReceivedCallback) -> HandlerOutcome:
        try:
            process = await self._start_command(received)
        except OSError as error:
            return Failed(f"the command could not be started: {error.strerror}")
        try:
            async with asyncio.timeout(self._timeout_seconds):
                await _run_to_end(process, received.body)
        except TimeoutError:
            return Failed(f"the command ran for more than {self._timeout_seconds:g} s and was terminated")
        finally:
            await _terminate(process)
            if process.stdin is not None:
                process.stdin.close()
        return _judge_exit(process.returncode)

    async def _start_command(self, received: ReceivedCallback) -> Process:
        return await asyncio.create_subprocess_exec(
            *("sh", "-c", _GUARD_SCRIPT, "ringback-listen", self._command),
            stdin=PIPE,
            env={**self._environment, **build_callback_variables(received)},
            start_new_session=True,  # Ctrl-C reaches the listener only, which lets the command end
        )


def build_callback_variables(received: ReceivedCallback) -> dict[str, str]:
    """The environment variables for one callback. A member that the callback does not have is an empty text."""
    callback = received.callback
    values = {
        "RINGBACK_WEBHOOK_ID": received.event_id,
        "RINGBACK_ATTEMPT": str(received.attempt),
        "RINGBACK_EVENT_NAME": callback.name,
        "RINGBACK_CALL_ID": callback.call_id,
        "RINGBACK_STATUS": callback.status,
        "RINGBACK_OUTCOME": callback.outcome,
        "RINGBACK_CLIENT_SESSION_ID": callback.client_session_id,
        "RINGBACK_CORRELATION_ID": callback.correlation_id,
    }
    # An id of a client may contain a NUL character, which no environment can.
    return {name: (value or "").replace("\0", "") for name, value in values.items()}


def _judge_exit(code: int | None) -> HandlerOutcome:
    match code:
        case 0:
            return Handled()
        case _ if code == EXIT_REFUSED:
            return Refused(f"the command refused it (exit code {EXIT_REFUSED})")
        case 126 | 127:
            return Failed(f"the shell could not run the command (exit code {code})")
        case _:
            return Failed(f"the command failed (exit code {code})")


async def _run_to_end(process: Process, body: bytes) -> None:
    """Give the body, which is one line of JSON, to the script, and wait for its end."""
    assert process.stdin is not None  # noqa: S101 - the process was started with a pipe
    with suppress(ConnectionError):  # the script was killed
        process.stdin.write(body + b"\n")
        await process.stdin.drain()
    await process.wait()


async def _terminate(process: Process) -> None:
    """End the command and the processes of its session, if it still runs."""
    if process.returncode is not None:
        return
    _signal_group(process, signal.SIGTERM)
    try:
        async with asyncio.timeout(TERMINATION_SECONDS):
            await process.wait()
    except TimeoutError:
        _signal_group(process, signal.SIGKILL)
        await process.wait()


def _signal_group(process: Process, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
