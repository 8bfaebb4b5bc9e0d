"""When and how long the bridge sends a message again."""

from dataclasses import dataclass
from typing import Final

from ringback.backoff import Backoff
from ringback.cli.stdio_bridge.endpoint import ServiceEndpoint
from ringback.cli.stdio_bridge.responses import NoResponse
from ringback.domain.clock import Clock

BACKOFF: Final = Backoff(first_seconds=0.1, longest_seconds=1.0)
"""A service starts within seconds, and few clients share a bridge; so it is asked every second."""
FIRST_CONTACT_SECONDS: Final = 5.0
"""From the start of the bridge, for a service that has never responded: long enough for one that starts together with the
client, and less than the 10 s that clients wait for a command to start. A wrong URL must not look like a slow start."""
RECONNECT_SECONDS: Final = 45.0
"""For a service that has responded before. Common clients give up after 60 s and would then not see what the bridge says."""
LOSSES_MAX: Final = 5
"""Responses lost in a row. More look like a request that ends the service, and must not end it again and again."""
LASTING_SECONDS: Final = 30.0
"""A response that was lost after this time says nothing about the request: a proxy may limit the time of every response."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryLimits:
    """How long a message is sent again: to a service that has not responded yet, and to one that has."""

    first_contact_seconds: float = FIRST_CONTACT_SECONDS
    reconnect_seconds: float = RECONNECT_SECONDS


class ReconnectSchedule:
    """The failures in a row of one message."""

    def __init__(
        self, endpoint: ServiceEndpoint, clock: Clock, limits: RetryLimits | None, *, bridge_started_at: float
    ) -> None:
        """Without `limits` the message is sent again for ever. The start of the bridge is in monotonic time."""
        self._endpoint = endpoint
        self._clock = clock
        self._limits = limits
        self._bridge_started_at = bridge_started_at
        self._failures = 0
        self._losses = 0
        self._failing_since: float | None = None
        self._responded_at: float | None = None

    def record_response(self) -> None:
        """The response has begun."""
        self._failures = 0
        self._failing_since = None
        self._responded_at = self._clock.monotonic()

    async def pause_after(self, failure: NoResponse) -> bool:
        """Wait before the message is sent again; return False if it is not to be sent again."""
        now = self._clock.monotonic()
        self._count_failure(failure, now)
        if self._limits is not None and failure.is_hung:
            return False
        if self._limits is not None and (self._losses >= LOSSES_MAX or self._is_time_over(self._limits, now)):
            return False
        await self._clock.sleep(BACKOFF.pause_seconds(self._failures))
        return True

    def _count_failure(self, failure: NoResponse, now: float) -> None:
        if self._responded_at is not None and now - self._responded_at >= LASTING_SECONDS:
            self._losses = 0
        if self._responded_at is not None or failure.is_lost:
            self._losses += 1
        self._responded_at = None
        self._failures += 1
        if self._failing_since is None:
            self._failing_since = now

    def _is_time_over(self, limits: RetryLimits, now: float) -> bool:
        if not self._endpoint.has_responded:
            return now - self._bridge_started_at >= limits.first_contact_seconds
        return self._failing_since is not None and now - self._failing_since >= limits.reconnect_seconds
