"""What a listener does with a callback, and how that ends. `PrintHandler` is the one without `--forward-to` and `--exec`."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from ringback.cli.callback_text import describe_callback
from ringback.cli.output import escape_control_characters
from ringback.cli.stop_signals import print_in_thread
from ringback.receiver import Callback


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedCallback:
    """A callback for a handler. `attempt` counts from 1."""

    event_id: str
    callback: Callback
    body: bytes = field(repr=False)
    attempt: int


@dataclass(frozen=True, slots=True)
class Handled:
    """The callback was handled."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler failed, and is tried again. `retry_after_seconds` is the pause that the handler asked for."""

    reason: str
    retry_after_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Refused:
    """The handler refused the callback for good."""

    reason: str


HandlerOutcome = Handled | Failed | Refused


class CallbackHandler(Protocol):
    async def handle_callback(self, received: ReceivedCallback) -> HandlerOutcome:
        """Handle one callback. The same callback may come again after a crash, with the same `event_id`."""
        ...


class PrintHandler:
    """Prints callbacks, as text or as one line of JSON each."""

    def __init__(self, print_text: Callable[[str], None], *, as_json: bool) -> None:
        self._print_text = print_text
        self._as_json = as_json

    async def handle_callback(self, received: ReceivedCallback) -> HandlerOutcome:
        text = format_json_line(received.body) if self._as_json else describe_callback(received.callback)
        await print_in_thread(self._print_text, text)
        return Handled()


def format_json_line(body: bytes) -> str:
    return escape_control_characters(json.dumps(json.loads(body), ensure_ascii=False))
