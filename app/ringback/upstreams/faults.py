"""What an upstream sends that it should not: counted for its health, and warned of now and then.

A call that is hit ends with its own error. The rest belongs to no call, so nothing but these counts shows it: in
`GET /v1/upstreams`, in the metrics, and in the log once a minute for each kind, because a broken server can send millions.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from ringback.domain.clock import Clock

log = logging.getLogger(__name__)

WARNING_INTERVAL_SECONDS: Final = 60.0
"""Between two warnings of one kind about one upstream; the count in each tells of those between."""


class Fault(StrEnum):
    UNREADABLE = "unreadable"
    """A message that is no JSON-RPC message, or holds what cannot be kept."""
    OVERSIZED = "oversized"
    """A message beyond `RESULT_BYTES_MAX`, or a page of a list beyond `LIST_BYTES_MAX`; it is skipped unread."""
    UNMATCHED = "unmatched"
    """An answer to no request of ours, or the second one to a request."""
    REPAIRED = "repaired"
    """A message whose text was not Unicode: U+FFFD stands where half a character stood."""
    DROPPED = "dropped_notifications"
    """Notifications that came faster than they are handed on; of those that say the same the newest is kept."""
    LIST_CUT = "list_cut"
    """A list that has more than is kept of one; what is over is left out."""
    STALLED = "stalled"
    """A child that did not read its input for a while, so requests were refused."""
    REPLACED = "replaced"
    """A child that was frozen, killed, and started anew."""


class FaultCounter:
    """Those of one upstream since this process started; they outlive its connections."""

    def __init__(self, upstream: str, *, clock: Clock) -> None:
        self._upstream = upstream
        self._clock = clock
        self._counts = Counter[Fault]()
        self._warned_at: dict[Fault, float] = {}

    @property
    def counts(self) -> Mapping[str, int]:
        return {str(fault): count for fault, count in sorted(self._counts.items())}

    def increment(self, fault: Fault) -> None:
        self._counts[fault] += 1
        now, warned_at = self._clock.monotonic(), self._warned_at.get(fault)
        if warned_at is None or now - warned_at >= WARNING_INTERVAL_SECONDS:
            self._warned_at[fault] = now
            log.warning(
                "upstream.fault",
                extra={"upstream": self._upstream, "fault": str(fault), "count": self._counts[fault]},
            )
