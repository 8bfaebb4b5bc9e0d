"""Follows a call until it ends: its progress on standard error, its result on standard output. For `call --wait` and `join`."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ringback.backoff import Backoff
from ringback.cli.output import (
    EXIT_NO_RESULT,
    TRY_AGAIN,
    model_to_json,
    print_json,
    print_message,
    print_output,
    strip_control_characters,
)
from ringback.client import Call, ConnectionFailed, QuotaExceeded, RingbackClient, Unavailable

POLL_INTERVAL_SECONDS: Final = 0.5
"""Between two requests for the progress. The service records progress at most once a second."""
RETRY_BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=15.0)
"""The pause while the service does not respond."""


async def show_outcome(
    client: RingbackClient,
    call: Call,
    result: Mapping[str, Any] | None,
    *,
    wait_seconds: float | None = None,
    as_json: bool = False,
) -> int:
    """Follow the call and print its result, or the reason for its absence. Returns the exit code."""
    if not call.final:
        call = await follow_call(client, call, wait_seconds=wait_seconds)
    if call.status == "completed" and result is None:
        result = await client.result(call.id)
    if as_json:
        print_json({"call": model_to_json(call), "result": result})
    elif result is not None:
        print_result(result)
    if not call.final:
        print_message(f"{call.id} is {call.status}, and continues. {join_advice(call.id)}")
        return TRY_AGAIN
    if result is None:
        print_message(describe_outcome(call))
    return 0 if call.outcome == "result" else EXIT_NO_RESULT


async def follow_call(client: RingbackClient, call: Call, *, wait_seconds: float | None) -> Call:
    """Poll the call until it ends or the time is over. Its stored progress is shown first."""
    print_message(f"{call.id} is running. It continues if you interrupt this command.")
    display = _ProgressDisplay()
    try:
        with display:
            async with asyncio.timeout(wait_seconds):
                while not call.final:
                    display.show_call(call)
                    await asyncio.sleep(POLL_INTERVAL_SECONDS)
                    call = await _read_call(client, call.id)
    except TimeoutError:
        return call
    except asyncio.CancelledError:
        print_message(f"{call.id} continues. {join_advice(call.id)}")
        raise
    return call


async def _read_call(client: RingbackClient, call_id: str) -> Call:
    """Read the call, for as long as it takes the service to respond: a join outlives its restart."""
    failures = 0
    while True:
        try:
            return await client.call(call_id)
        except (ConnectionFailed, Unavailable, QuotaExceeded) as error:
            failures += 1
            print_message(f"{error} The next attempt follows.")
            await asyncio.sleep(RETRY_BACKOFF.pause_seconds(failures))


class _ProgressDisplay:
    """A bar if standard error is a terminal, else a line for each change."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._is_terminal = console.is_terminal
        self._last_line = ""
        self._shown_requests: set[str] = set()
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not self._is_terminal,
        )
        self._task = self._bar.add_task("working", total=None)

    def __enter__(self) -> None:
        self._bar.start()

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show_call(self, call: Call) -> None:
        for key in call.input_requests.keys() - self._shown_requests:
            self._shown_requests.add(key)
            print_message(describe_input_request(call, key))
        if self._is_terminal:
            self._update_bar(call)
        elif (line := describe_progress(call)) and line != self._last_line:
            self._last_line = line
            print_message(line)

    def _update_bar(self, call: Call) -> None:
        if call.progress is not None:
            description = strip_control_characters(call.progress.message or call.status)
            self._bar.update(
                self._task, description=description, completed=call.progress.progress, total=call.progress.total
            )


def describe_progress(call: Call) -> str:
    """The call's progress as one line: `3/10 reading`; empty without progress."""
    if call.progress is None:
        return ""
    return f"{format_progress(call.progress.progress, call.progress.total)} {call.progress.message or ''}".rstrip()


def format_progress(progress: float, total: float | None) -> str:
    return f"{progress:g}" if total is None else f"{progress:g}/{total:g}"


def describe_input_request(call: Call, key: str) -> str:
    request = call.input_requests[key]
    message = request.params.get("message") or request.method
    return f"The tool asks: {message}\nAnswer it: ringback calls answer {call.id} --key {key} --accept '{{…}}'"


def describe_outcome(call: Call) -> str:
    message = (call.error or {}).get("message")
    return f"{call.id} ended as {call.status} ({call.outcome})" + (f": {message}" if message else ".")


def join_advice(call_id: str) -> str:
    return f"Join it: ringback join {call_id}"


def print_result(result: Mapping[str, Any]) -> None:
    """Print text blocks as text, and everything else as JSON."""
    content: Any = result.get("content")
    if not isinstance(content, list) or not content:
        print_json(result)
        return
    for block in cast("list[Any]", content):
        match block:
            case {"type": "text", "text": str() as text}:
                print_output(text)
            case _:
                print_json(block)
