"""Whether a silent child process works or is frozen. Only a frozen child is replaced.

    seen                                                             verdict
    output within `UNRESPONSIVE_AFTER_SECONDS`, and it reads input   ALIVE
    stopped by a signal (T) for `STOPPED_TIMEOUT_SECONDS`            FROZEN
    silent, nothing in flight                                        FROZEN
    silent, and every deadline of what is in flight is past          FROZEN
    silent, or its input unread, while a call still has time         UNRESPONSIVE

Silence counts from the last output or, if later, from the first unanswered ping, because an idle server sends nothing. A server
that runs a synchronous tool on its event loop (SDK 1.x) answers no ping meanwhile, so a call before its deadline keeps the
child alive: ending a working server would end every call on it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

UNRESPONSIVE_AFTER_SECONDS: Final = 30.0
"""A working server answers a ping within milliseconds; a machine that swaps takes seconds."""
STOPPED_TIMEOUT_SECONDS: Final = 10.0
"""A user who stops a process by Ctrl-Z or a debugger continues it soon, or does not need it."""


class Liveness(StrEnum):
    ALIVE = "alive"
    UNRESPONSIVE = "unresponsive"
    FROZEN = "frozen"


@dataclass(frozen=True, slots=True, kw_only=True)
class LivenessSample:
    """The observed state of a child. All instants are seconds of one monotonic clock."""

    now: float
    stopped_since: float | None = None
    """When it was first seen stopped by a signal, if every later check saw it stopped."""
    ping_unanswered_since: float | None = None
    """When the first ping was sent that no output has followed."""
    reads_input: bool = True
    deadlines: Collection[float] = ()
    """Deadlines of the calls in flight on the child."""


def classify_liveness(sample: LivenessSample) -> Liveness:
    if sample.stopped_since is not None and sample.now - sample.stopped_since >= STOPPED_TIMEOUT_SECONDS:
        return Liveness.FROZEN
    is_silent = (
        sample.ping_unanswered_since is not None
        and sample.now - sample.ping_unanswered_since >= UNRESPONSIVE_AFTER_SECONDS
    )
    if is_silent and all(deadline <= sample.now for deadline in sample.deadlines):
        return Liveness.FROZEN
    return Liveness.UNRESPONSIVE if is_silent or not sample.reads_input else Liveness.ALIVE
