"""Notices that an upstream over HTTP does not respond: it answers neither its calls nor a probe.

    a call is in flight, and no message arrives for `SILENT_SECONDS` ──▶ probe ──no answer for `PROBE_SECONDS`──▶ unresponsive
                                                                          └──answered, or any message──▶ responsive

It is only shown, and no call ends because of it: a server that runs a synchronous tool on its event loop (SDK 1.x) answers
nothing meanwhile, and its process is not Ringback's.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from ringback.asyncio_tasks import end_tasks
from ringback.domain.clock import Clock
from ringback.domain.liveness import Liveness
from ringback.protocol.errors import RequestFailed, RequestNotSent, ResponseLost, TlsFailed
from ringback.upstreams.session import UpstreamSession

CHECK_SECONDS: Final = 5.0
"""Between two checks."""
SILENT_SECONDS: Final = 30.0
"""Without a message of the upstream while a call is in flight. Then a probe is sent."""
PROBE_SECONDS: Final = 30.0
"""For the answer to a probe. A machine that swaps takes seconds."""


class SilenceMonitor:
    def __init__(
        self,
        session: UpstreamSession,
        *,
        clock: Clock,
        has_calls: Callable[[], bool],
        count_received: Callable[[], int],
        on_liveness_change: Callable[[Liveness], None],
    ) -> None:
        """`session` sends the probes. `count_received` counts the upstream's messages so far, in all sessions of its calls.

        `on_liveness_change` gets each change.
        """
        self._session = session
        self._clock = clock
        self._has_calls = has_calls
        self._count_received = count_received
        self._on_liveness_change = on_liveness_change
        self._liveness = Liveness.ALIVE
        self._last_received = count_received()
        self._silent_since = clock.monotonic()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await self._clock.sleep(CHECK_SECONDS)
            if self._has_received() or (self._liveness is Liveness.ALIVE and not self._has_calls()):
                self._note_response()
            elif self._clock.monotonic() - self._silent_since >= SILENT_SECONDS:
                await self._probe()

    def _has_received(self) -> bool:
        return self._count_received() != self._last_received

    def _note_response(self) -> None:
        self._last_received = self._count_received()
        self._silent_since = self._clock.monotonic()
        self._set_liveness(Liveness.ALIVE)

    def _set_liveness(self, liveness: Liveness) -> None:
        if liveness is not self._liveness:
            self._liveness = liveness
            self._on_liveness_change(liveness)

    async def _probe(self) -> None:
        """Send one probe at a time, so that a frozen server gets no queue of them."""
        probe = asyncio.create_task(self._send_probe())
        until = self._clock.monotonic() + PROBE_SECONDS
        try:
            while not probe.done() and not self._has_received() and self._clock.monotonic() < until:
                await self._clock.sleep(CHECK_SECONDS)
            if self._has_received() or (probe.done() and not probe.exception() and probe.result()):
                self._note_response()
            else:
                self._set_liveness(Liveness.UNRESPONSIVE)
        finally:
            await end_tasks([probe])

    async def _send_probe(self) -> bool:
        """Whether there is an answer, which may be an error, or a status that a proxy sends."""
        try:
            await self._session.send_probe()
        except RequestFailed as failure:
            return type(failure) not in {RequestNotSent, TlsFailed, ResponseLost}
        return True
