"""How long a stream of events may be silent before it counts as dead.

A client is to reconnect after twice the interval of the heartbeats (mcp-events §5), which no message names. So the interval is
that which this stream shows: the longest time between two of its heartbeats. A stream with fewer heartbeats may be silent for
as long as the specification's slowest server. A reconnection that was not needed loses the events of a server without
cursors, so the allowance doubles after each one.
"""

from collections.abc import Iterable
from typing import Final

from ringback.protocol.mcp_events.names import EventNotification

SILENCE_SECONDS_MAX: Final = 75.0
"""Heartbeats come every 30 s at least."""
SLACK_SECONDS: Final = 3.0
"""For delays of the network and of either machine, whatever the interval."""
INTERVALS_MIN: Final = 3
"""Fewer may be short by chance: heartbeats that were held up arrive together."""


class StreamSilence:
    """Of one following, over all its streams. Times are seconds of one monotonic clock."""

    def __init__(self) -> None:
        self._factor = 2.0
        self.begin_stream()

    def begin_stream(self) -> None:
        self._last_at: float | None = None
        self._intervals = 0
        self._longest = 0.0

    def note_frames(self, methods: Iterable[str], *, at: float) -> None:
        """Frames of the stream have arrived."""
        if EventNotification.HEARTBEAT not in methods:
            return
        if self._last_at is not None:
            self._intervals += 1
            self._longest = max(self._longest, at - self._last_at)
        self._last_at = at

    def note_death(self) -> None:
        """The stream was silent for longer than allowed. Its server may only have been slow."""
        if self._intervals >= INTERVALS_MIN:
            self._factor *= 2

    @property
    def allowed_seconds(self) -> float:
        if self._intervals < INTERVALS_MIN:
            return SILENCE_SECONDS_MAX
        return min(self._factor * self._longest + SLACK_SECONDS, SILENCE_SECONDS_MAX)
