"""What happens to a verified message: the sender's acknowledgement depends on it.

DirectHandling   the handler runs, then the sender gets 2xx
InboxHandling    a file takes the message, the sender gets 2xx, then the handler runs, also after a restart
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from ringback.receiver.envelopes import Callback, Gap, Terminated

RETRY_AFTER_SECONDS: Final = 5.0
"""Ringback's first retry follows after 5 s as well."""
RETRY_AFTER_SECONDS_MAX: Final = 86_400.0
"""The longest step of Ringback's own retries; a sender waits no longer than that."""

NOT_READY_SECONDS_MIN: Final = 1.0
"""The shortest pause before a handler that was not ready runs again in this process: the first pause after a failure, too."""

Envelope = Callback | Gap | Terminated
OrderKey = Callable[[Callback], str]
"""Callbacks with the same key are handled one after the other."""
KeepForWaiters = Callable[[Callback, int, int], None]
"""Keeps a callback for `wait_for`, under its number, with the size of its body in bytes."""


class NotReady(Exception):
    """A handler raises it if it cannot handle the callback yet, for instance because the agent's checkpoint is not written.

    The callback comes again after `retry_after_seconds`: the sender gets 503 with Retry-After, or the inbox tries again, after
    a second at the earliest. It is not logged as an error.
    """

    def __init__(self, retry_after_seconds: float = RETRY_AFTER_SECONDS, *, reason: str = "Not ready yet.") -> None:
        if not math.isfinite(retry_after_seconds) or retry_after_seconds < 0:
            raise ValueError("retry_after_seconds must be a number of seconds, 0 or more.")
        super().__init__(reason)
        self.retry_after_seconds = min(retry_after_seconds, RETRY_AFTER_SECONDS_MAX)

    def __reduce__(self) -> tuple[Any, ...]:
        """For a handler that works in a pool of processes."""
        return partial(type(self), reason=str(self)), (self.retry_after_seconds,)


class InboxNotReady(NotReady):
    """The inbox is full or cannot be written: every message has to wait, not only this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """A verified message, or an event that was read from the log."""

    message_id: str
    scope: str
    """Messages with the same id are copies of each other within a scope. `FETCHED` for an event from the log."""
    envelope: Envelope
    body: bytes = field(repr=False)


class MessageHandling(Protocol):
    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def accept(self, message: ReceivedMessage) -> None:
        """Return once the sender may forget the message. Raises `NotReady`, or what the handler raises."""
        ...

    def forget_waitable(self, number: int) -> None:
        """The callback with this number is kept for waiters no longer."""
        ...

    async def read_cursor(self) -> str | None:
        """The place in the event log from which missed events are fetched at the next start."""
        ...

    async def save_cursor(self, cursor: str) -> None: ...


def order_by_session(callback: Callback) -> str:
    """The client_session_id; without one, the call, so that a call's question and its end are not handled at once."""
    if callback.client_session_id is not None:
        return f"session {callback.client_session_id}"
    return f"call {callback.call_id}" if callback.call_id is not None else f"event {callback.event_id}"
