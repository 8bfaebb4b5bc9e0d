"""The first signal lets a command end in order, and the second one at once."""

import asyncio
import signal


def handle_stop_signals(stop: asyncio.Event | None = None) -> tuple[asyncio.Event, asyncio.Event]:
    """Events that the first signal and the second one set: `stop`, or a new event, and another."""
    stop, abort = stop or asyncio.Event(), asyncio.Event()

    def handle_signal() -> None:
        (abort if stop.is_set() else stop).set()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, handle_signal)
    return stop, abort
