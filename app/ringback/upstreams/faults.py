"""Counts invalid messages and other faults of an upstream, and holds the limits of its messages.

A call that a fault affects ends with its own error. Other faults belong to no call, so only these counts show them: in
`GET /v1/upstreams`, in the metrics, and in the log once a minute for each kind, because a broken server can send millions.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from ringback.domain.clock import Clock
from ringback.upstreams.message_flow import MessageFlow

log = logging.getLogger(__name__)

FLOODING: Final = "flooding"
"""The kind of warning about more messages than are read."""
WARNING_INTERVAL_SECONDS: Final = 60.0
"""Between two warnings of one kind about one upstream; each warning has the total count."""


class Fault(StrEnum):
    UNREADABLE = "unreadable"
    """A message that is no JSON-RPC message, or that cannot be stored."""
    OVERSIZED = "oversized"
    """A message above `RESULT_BYTES_MAX` or a list page above `LIST_BYTES_MAX`; it is skipped without being decoded."""
    UNMATCHED = "unmatched"
    """A response to no request of ours, or a second response to one."""
    REPAIRED = "repaired"
    """A message with invalid Unicode; U+FFFD replaces each invalid character."""
    DROPPED = "dropped_notifications"
    """Notifications dropped because they arrived faster than they are forwarded; the newest of each kind is kept."""
    SLOWED = "slowed"
    """A pause in reading the upstream, because it sends messages faster than they are read (`message_flow`), or a request that
    is refused for the same reason."""
    LIST_CUT = "list_cut"
    """A list above the size limit; the entries beyond the limit are left out."""
    BAD_EVENT = "bad_event"
    """An event that is malformed, of another type than asked for, or too large; it is left out."""
    STALLED = "stalled"
    """A request refused because the child has not read its input for a while."""
    REPLACED = "replaced"
    """A frozen child that was killed and restarted."""


_FLOODS: Final = frozenset({Fault.DROPPED, Fault.SLOWED})


class FaultCounter:
    """The faults of one upstream since the process started, over all its connections."""

    def __init__(self, upstream: str, *, clock: Clock) -> None:
        self._upstream = upstream
        self._clock = clock
        self._counts = Counter[Fault]()
        self._warned_at: dict[str, float] = {}
        self.flow = MessageFlow(clock=clock)

    @property
    def counts(self) -> Mapping[str, int]:
        return {str(fault): count for fault, count in sorted(self._counts.items())}

    def increment(self, fault: Fault, count: int = 1) -> None:
        self._counts[fault] += count
        if fault in _FLOODS:
            if self._is_warning_due(FLOODING):
                log.warning("upstream.flooding", extra={"upstream": self._upstream, "count": self._counts[fault]})
        elif self._is_warning_due(fault):
            log.warning(
                "upstream.fault",
                extra={"upstream": self._upstream, "fault": str(fault), "count": self._counts[fault]},
            )

    def _is_warning_due(self, kind: str) -> bool:
        now, warned_at = self._clock.monotonic(), self._warned_at.get(kind)
        if warned_at is not None and now - warned_at < WARNING_INTERVAL_SECONDS:
            return False
        self._warned_at[kind] = now
        return True
