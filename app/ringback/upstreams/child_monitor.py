"""Checks a child process: pings it while it is silent, and kills a frozen one (`domain.liveness`)."""

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from ringback.domain.clock import Clock
from ringback.domain.liveness import Liveness, LivenessSample, classify_liveness
from ringback.protocol.errors import RequestFailed
from ringback.upstreams.faults import Fault, FaultCounter
from ringback.upstreams.session import UpstreamSession
from ringback.upstreams.transports.child_process import ChildProcess

log = logging.getLogger(__name__)

CHECK_SECONDS: Final = 5.0
"""Between two checks. A check sends a ping if the child has sent nothing since the previous one."""
FROZEN_REASON: Final = "Ringback replaced the upstream's command, which did not respond. The tool may have run."
_STOPPED: Final = "T"


class ChildMonitor:
    def __init__(
        self,
        session: UpstreamSession,
        child: ChildProcess,
        *,
        clock: Clock,
        faults: FaultCounter,
        deadlines: Callable[[], Collection[float]],
        on_liveness_change: Callable[[Liveness], None],
    ) -> None:
        """`deadlines` returns those of the running calls, by `clock.monotonic()`; `on_liveness_change` gets each change."""
        self._session = session
        self._child = child
        self._clock = clock
        self._faults = faults
        self._deadlines = deadlines
        self._on_liveness_change = on_liveness_change
        self._liveness = Liveness.ALIVE
        self._last_chunks_received = child.chunks_received
        self._stopped_since: float | None = None
        self._ping_unanswered_since: float | None = None
        self._ping_task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run until the child has exited, or was frozen and is killed."""
        try:
            while self._child.is_running:
                await self._clock.sleep(CHECK_SECONDS)
                if self._check_liveness() is Liveness.FROZEN:
                    break
        finally:
            if self._ping_task is not None:
                self._ping_task.cancel()

    def _check_liveness(self) -> Liveness:
        sample = self._make_sample()
        liveness = classify_liveness(sample)
        if liveness is not self._liveness:
            self._liveness = liveness
            self._on_liveness_change(liveness)
        if liveness is Liveness.FROZEN:
            # First, so that no call starts between the kill and its detection.
            self._session.close_to_new_requests(end_reason=FROZEN_REASON)
            self._child.kill()
            self._faults.increment(Fault.REPLACED)
        elif self._ping_unanswered_since is None and self._is_silent():
            self._start_ping(sample.now)
        self._last_chunks_received = self._child.chunks_received
        return liveness

    def _make_sample(self) -> LivenessSample:
        now, status = self._clock.monotonic(), self._child.read_status()
        stopped = status is not None and status.state == _STOPPED
        self._stopped_since = None if not stopped else self._stopped_since or now
        if not self._is_silent():
            self._ping_unanswered_since = None
        return LivenessSample(
            now=now,
            stopped_since=self._stopped_since,
            ping_unanswered_since=self._ping_unanswered_since,
            reads_input=not self._child.is_stalled,
            deadlines=self._deadlines(),
        )

    def _is_silent(self) -> bool:
        return self._child.chunks_received == self._last_chunks_received

    def _start_ping(self, now: float) -> None:
        """Send one ping at a time. Any response proves that the child runs, also an error."""
        self._ping_unanswered_since = now
        if self._ping_task is None or self._ping_task.done():
            self._ping_task = asyncio.create_task(self._send_ping())

    async def _send_ping(self) -> None:
        with suppress(RequestFailed):
            await self._session.send_request("ping", {})
