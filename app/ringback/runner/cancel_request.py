"""The cancel request of a call to its upstream, which several tasks of its execution may want to send."""

import asyncio
import logging
from typing import Final

from ringback.domain.call_outcome import CallCompletion
from ringback.protocol.errors import RequestFailed
from ringback.runner.drivers.driver import BoundDriverPort
from ringback.runner.leased_call import LeasedCall
from ringback.telemetry.logs import call_facts
from ringback.upstreams.errors import UpstreamUnreachable

log = logging.getLogger(__name__)

CANCEL_TIMEOUT_SECONDS: Final = 6.0
"""The limit for one cancel request, and for the end of an abandoned request. The SDK gives each of the two 5 s."""


class CancelRequest:
    """The cancel request of one execution to its upstream: delivered once, sent again until then."""

    def __init__(self, leased_call: LeasedCall) -> None:
        self._leased_call = leased_call
        self.is_delivered = False
        self._completion: CallCompletion | None = None
        self._sending = asyncio.Lock()
        """Held while a cancel request is sent: the beginning of a session and a notification may both want to send it."""

    async def send(self, session: BoundDriverPort) -> CallCompletion | None:
        """The completion if the cancel request ends the call; None if it failed or the upstream will report the end."""
        async with self._sending:
            if self.is_delivered:
                return self._completion
            try:
                async with asyncio.timeout(CANCEL_TIMEOUT_SECONDS):
                    self._completion = await session.cancel_call(self._leased_call.call)
            except (RequestFailed, UpstreamUnreachable, TimeoutError):
                log.info("call.cancel_not_sent", extra=call_facts(self._leased_call.call))
                return None
            self.is_delivered = True
            return self._completion
