"""Follows a call until it ends: its progress on standard error, its result on standard output. For `call --wait` and `join`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from ringback.backoff import Backoff
from ringback.cli.call_words import (
    describe_input_request,
    describe_outcome,
    describe_progress,
    describe_state,
    join_advice,
)
from ringback.cli.output import (
    EXIT_INPUT_REQUIRED,
    EXIT_NO_RESULT,
    EXIT_NOT_DONE,
    TRY_AGAIN,
    model_to_json,
    print_json,
    print_message,
    print_output,
)
from ringback.client.problems import ClientError, ConnectionFailed, QuotaExceeded, Unavailable

if TYPE_CHECKING:
    from ringback.client import Call, RingbackClient

T = TypeVar("T")

POLL_INTERVAL_SECONDS: Final = 0.5
"""Between two requests for the progress. The service records progress at most once a second."""
RETRY_BACKOFF: Final = Backoff(first_seconds=1.0, longest_seconds=15.0)
"""The pause while the service does not respond."""
AWAY_ERRORS: Final = (ConnectionFailed, Unavailable, QuotaExceeded)
"""The errors of a service that restarts, or whose database does."""


class StillAway(ClientError):
    """The service could not execute the request until the command's own time limit."""


def exit_code_of_wait(error: Exception) -> int:
    return TRY_AGAIN if isinstance(error, StillAway) else EXIT_NOT_DONE


def end_of_wait(wait_seconds: float | None) -> float:
    """On the event loop's clock."""
    return inf if wait_seconds is None else asyncio.get_running_loop().time() + wait_seconds


async def repeat_request(send: Callable[[], Awaitable[T]], *, ends_at: float = inf, has_responded: bool = True) -> T:
    """Send the request until the service executes it: a wait survives a restart of the service, and of its database.

    Raises `StillAway` when the next attempt would be after `ends_at`. If the service has never responded, a failed connection
    is raised at once, because a wrong URL is more likely than a restart.
    """
    failures = 0
    while True:
        try:
            return await send()
        except AWAY_ERRORS as error:
            if isinstance(error, ConnectionFailed) and not has_responded:
                raise
            has_responded = True
            failures += 1
            pause = RETRY_BACKOFF.pause_seconds(failures)
            if asyncio.get_running_loop().time() + pause >= ends_at:
                raise StillAway(str(error)) from error
            print_message(f"{error} The next attempt follows.")
            await asyncio.sleep(pause)


def has_terminal() -> bool:
    """Whether a person may be there who reads a question and answers it, in another terminal."""
    return sys.stdin is not None and sys.stdin.isatty()  # it is None if the process was started without it


async def show_outcome(
    client: RingbackClient,
    call: Call,
    result: Mapping[str, Any] | None,
    *,
    ends_at: float = inf,
    wait_for_input: bool = False,
    as_json: bool = False,
) -> int:
    """Follow the call and print its result, or the reason for its absence. Returns the exit code.

    `wait_for_input`: the wait goes on while the tool requests input, also without a terminal.
    """
    waits_for_input = wait_for_input or has_terminal()
    if not call.final:
        call = await follow_call(client, call, ends_at=ends_at, waits_for_input=waits_for_input)
    if call.status == "completed" and result is None:
        result = await repeat_request(lambda: client.result(call.id), ends_at=ends_at)
    if as_json:
        print_json({"call": model_to_json(call), "result": result})
    elif result is not None:
        print_result(result)
    if call.input_requests and not waits_for_input:
        print_message(
            f"{call.id} waits for input, and continues with it. Join it again after that: ringback join {call.id}"
        )
        return EXIT_INPUT_REQUIRED
    if not call.final:
        print_message(f"{call.id} is {call.status}, and continues. {join_advice(call.id)}")
        return TRY_AGAIN
    if result is None:
        print_message(describe_outcome(call))
    return 0 if call.outcome == "result" else EXIT_NO_RESULT


async def follow_call(
    client: RingbackClient, call: Call, *, ends_at: float = inf, waits_for_input: bool = True
) -> Call:
    """Poll the call until it ends, the time is over, or it requests input that is not waited for.

    Its stored progress is shown first.
    """
    print_message(f"{await _describe_wait(client, call)} It continues if you interrupt this command.")
    display = _ProgressDisplay()
    try:
        with display:
            async with asyncio.timeout_at(None if ends_at == inf else ends_at):
                while not call.final:
                    display.show_call(call)
                    if call.input_requests and not waits_for_input:
                        break
                    await asyncio.sleep(POLL_INTERVAL_SECONDS)
                    call = await repeat_request(partial(client.call, call.id))
    except TimeoutError:
        return call
    except asyncio.CancelledError:
        print_message(f"{call.id} continues. {join_advice(call.id)}")
        raise
    return call


async def _describe_wait(client: RingbackClient, call: Call) -> str:
    """What the call does now. Only for a call that has not run, one more request reads whether its upstream is paused."""
    if call.waits_for is None:
        return f"{call.id} {'waits for input' if call.input_requests else 'is running'}."
    if call.waits_for == "not_before":
        return f"{call.id} is scheduled{_describe_start(call)}."
    if not await _has_paused_upstream(client, call):
        waits = "has not started: it waits" if call.dispatched_at is None else "waits"
        place = "for its upstream" if call.waits_for == "upstream" else "in the queue for its turn"
        return f"{call.id} {waits} {place}."
    from ringback.domain.wait_words import describe_pause  # noqa: PLC0415 - few calls wait for an operator

    return f"{call.id}: {describe_pause(call.upstream)}"


def _describe_start(call: Call) -> str:
    if call.not_before is None:
        return ""
    from ringback.domain.clock import format_iso  # noqa: PLC0415 - few calls start later

    return f": it starts at {format_iso(call.not_before)}"


async def _has_paused_upstream(client: RingbackClient, call: Call) -> bool:
    """False if it cannot be read: only a text depends on it."""
    with suppress(ClientError):
        return any(each.name == call.upstream and each.intake == "paused" for each in await client.upstreams())
    return False


class _ProgressDisplay:
    """A bar if standard error is a terminal, else a line for each change."""

    def __init__(self) -> None:
        from rich.console import Console  # noqa: PLC0415 - a call that ends at once has no bar
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - the same

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
        done, total = (None, None) if call.progress is None else (call.progress.progress, call.progress.total)
        self._bar.update(self._task, description=describe_state(call), completed=done, total=total)


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
