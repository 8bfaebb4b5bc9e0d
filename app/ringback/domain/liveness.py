"""Whether a child process that says nothing is at work, or frozen: the rule by which one is replaced, and no other.

    seen                                                             verdict
    heard within `SILENT_SECONDS`, and it reads its input            ALIVE
    stopped by a signal (state T) for `STOPPED_SECONDS`              FROZEN
    silent, nothing in flight                                        FROZEN
    silent, and every deadline of what is in flight is past          FROZEN
    silent, or its input unread, while a call still has time         UNRESPONSIVE

Silence counts from the last thing heard or, if that came later, from the first ping that got no answer: a server that has
nothing to say is asked first. One that runs a synchronous tool on its event loop (the SDK's 1.x do) answers no ping meanwhile.
So a call that still has time keeps it alive: ending a working server would end every call on it, for the sake of none.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

UNRESPONSIVE_AFTER_SECONDS: Final = 30.0
"""A ping is answered within milliseconds by whatever can answer; a machine that swaps takes seconds."""
STOPPED_TIMEOUT_SECONDS: Final = 10.0
"""A person who stops a process to look at it, by Ctrl-Z or a debugger, goes on within moments, or is not using it."""


class Liveness(StrEnum):
    ALIVE = "alive"
    UNRESPONSIVE = "unresponsive"
    FROZEN = "frozen"


@dataclass(frozen=True, slots=True, kw_only=True)
class LivenessSample:
    """What is seen of a child. All instants are seconds of one monotonic clock."""

    now: float
    stopped_since: float | None = None
    """When it was first seen stopped by a signal, if it was at each look since."""
    ping_unanswered_since: float | None = None
    """When the ping was sent to which nothing has been heard since."""
    reads_input: bool = True
    deadlines: Collection[float] = ()
    """Of the calls that are in flight on it."""


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
