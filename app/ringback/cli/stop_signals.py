"""The first signal lets a command end in order, and the second one at once."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Final

from ringback.cli.output import EXIT_INTERRUPTED

_prints: Final[set[object]] = set()
"""The prints that run in threads."""


def handle_stop_signals(stop: asyncio.Event | None = None) -> tuple[asyncio.Event, asyncio.Event]:
    """Events that the first signal and the second one set: `stop`, or a new event, and another."""
    stop, abort = stop or asyncio.Event(), asyncio.Event()
    _handle_signals(stop, abort.set)
    return stop, abort


def stop_or_end(stop: asyncio.Event) -> None:
    """Let the first signal set `stop`, and the second one end this process, for a command that then has nothing to save."""
    _handle_signals(stop, lambda: os._exit(EXIT_INTERRUPTED))


def _handle_signals(stop: asyncio.Event, handle_second: Callable[[], object]) -> None:
    def handle_signal() -> None:
        if stop.is_set():
            handle_second()
        else:
            stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, handle_signal)


async def print_in_thread(print_text: Callable[[str], None], text: str) -> None:
    """Print in a thread: a full pipe blocks the writer, for as long as its reader likes."""
    printed = object()

    def print_and_forget() -> None:
        try:
            print_text(text)
        finally:
            _prints.discard(printed)

    _prints.add(printed)
    await asyncio.to_thread(print_and_forget)


def end_if_print_is_blocked() -> None:
    """End this process if a print still runs, after everything else has ended: a normal exit would wait for its thread."""
    if _prints:
        os._exit(EXIT_INTERRUPTED)
