"""Runs a shell command for each callback."""

import asyncio
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from typing import Final

from ringback.cli.durable_listener.command_guard import LOOK_AGAIN_SECONDS, is_group_running, signal_group
from ringback.cli.durable_listener.handlers import Failed, Handled, HandlerOutcome, ReceivedCallback, Refused
from ringback.cli.durable_listener.running_commands import GRACE_SECONDS, RunningCommands

EXIT_REFUSED: Final = 65
"""Exit code with which a command refuses a callback for good: EX_DATAERR of sysexits.h."""
EXIT_BY_SIGNAL: Final = 128
"""Shells add the number of the signal that ended a command to this."""
_START_SCRIPT: Final = 'IFS= read -r _ && exec sh -c "$1"'
"""Waits for the first line of standard input, which is empty, and becomes the command $1, which reads the rest. The listener
writes the line when the guard knows the command: a listener that is killed before that leaves no command behind."""
_FIRST_WORD: Final = re.compile(r"\s*([A-Za-z0-9_./+][A-Za-z0-9_./+-]*)(?=[\s;&|<>]|$)")
"""What a shell runs, if nothing of it is to be replaced first. Not `NAME=VALUE` and not `name()`."""


async def find_missing_program(command: str, environment: Mapping[str, str]) -> str | None:
    """The first word of the shell command, if it names nothing that the shell can run; None if that is not known."""
    if (first := _FIRST_WORD.match(command)) is None:
        return None
    try:
        looking = await asyncio.create_subprocess_exec(
            *("sh", "-c", 'command -v "$1"', "ringback-listen", first[1]),
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
            env=environment,
        )
    except OSError:  # the handler says why it cannot start the command, with each callback
        return None
    return first[1] if await looking.wait() > 0 else None  # below 0: a signal has ended the look


class CommandHandler:
    """Runs `command` in a shell, with the callback's body on standard input and its ids in the environment.

    Exit code 0 means handled, 65 refused for good, any other that the command is to be run again. A command that runs for more
    than `timeout_seconds` is terminated. Before a command is run again, it and the processes that it started have ended: after
    SIGTERM they have `grace_seconds`. With `running`, the same happens when the listener is killed.

    Two kinds of processes run on: those that a command with exit code 0 or 65 leaves behind, and those that leave the command's
    process group, as setsid does.
    """

    def __init__(
        self,
        command: str,
        *,
        timeout_seconds: float,
        environment: Mapping[str, str],
        running: RunningCommands | None = None,
        grace_seconds: float = GRACE_SECONDS,
    ) -> None:
        self._command = command
        self._timeout_seconds = timeout_seconds
        self._environment = environment
        self._running = running
        self._grace_seconds = grace_seconds

    async def handle_callback(self, received: ReceivedCallback) -> HandlerOutcome:
        try:
            process = await self._start_command(received)
        except OSError as error:
            return Failed(f"the command could not be started: {error.strerror}")
        outcome: HandlerOutcome = Failed("the command was cancelled")
        try:
            async with asyncio.timeout(self._timeout_seconds):
                outcome = await self._run_to_end(process, received.body)
        except TimeoutError:
            outcome = Failed(f"the command ran for more than {self._timeout_seconds:g} s and was terminated")
        except OSError as error:
            outcome = Failed(f"the command could not be guarded: {error.strerror}")
        finally:
            if isinstance(outcome, Failed):
                await _end_group(process, self._grace_seconds)
            if self._running is not None:
                self._running.remove(process.pid)
        return outcome

    async def _start_command(self, received: ReceivedCallback) -> Process:
        return await asyncio.create_subprocess_exec(
            *("sh", "-c", _START_SCRIPT, "ringback-listen", self._command),
            stdin=PIPE,
            env={**self._environment, **build_callback_variables(received)},
            start_new_session=True,  # Ctrl-C reaches the listener only, which lets the command end
        )

    async def _run_to_end(self, process: Process, body: bytes) -> HandlerOutcome:
        """Let the command begin, give it the body, and wait for its end."""
        assert process.stdin is not None  # noqa: S101 - the process was started with a pipe
        if self._running is not None:
            await self._running.add(process.pid)
        process.stdin.write(b"\n" + body)
        process.stdin.close()  # after the body is written; a command that does not read it is no error
        code = await process.wait()
        return _judge_exit(code if code >= 0 else EXIT_BY_SIGNAL - code)


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


def _judge_exit(code: int) -> HandlerOutcome:
    match code:
        case 0:
            return Handled()
        case _ if code == EXIT_REFUSED:
            return Refused(f"the command refused it (exit code {EXIT_REFUSED})")
        case 126 | 127:
            return Failed(f"the shell could not run the command (exit code {code})")
        case _:
            return Failed(f"the command failed (exit code {code})")


async def _end_group(process: Process, grace_seconds: float) -> None:
    """Ask the command and the processes of its group to end, and kill what still runs after the grace time."""
    signal_group(process.pid, signal.SIGTERM)
    try:
        async with asyncio.timeout(grace_seconds):
            await process.wait()
            while is_group_running(process.pid):  # noqa: ASYNC110 - the system reports no end of a group
                await asyncio.sleep(LOOK_AGAIN_SECONDS)
    except TimeoutError:
        pass
    finally:  # also if the wait is cancelled
        signal_group(process.pid, signal.SIGKILL)
    await process.wait()
