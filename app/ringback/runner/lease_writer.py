"""Writes what the holder of a call's lease has to write, again and again while the store is unavailable."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from ringback.domain.call import Call, CallPhase
from ringback.domain.clock import Clock
from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.runner.drivers.driver import LeaseLost
from ringback.telemetry.logs import call_facts
from ringback.waits import LocalWaiter, ObservableFlag, wait_first

log = logging.getLogger(__name__)

STORE_RETRY_SECONDS: Final = 1.0
"""The pause between two attempts to write while the store is unavailable."""


class LeaseWriter:
    def __init__(
        self,
        call: Call,
        *,
        store: Store,
        clock: Clock,
        lease_lost: ObservableFlag,
        abort_requested: ObservableFlag,
    ) -> None:
        """`lease_lost` is set by a write that finds another lease."""
        self._call = call
        self._store = store
        self._clock = clock
        self._lease_lost = lease_lost
        self._abort_requested = abort_requested

    async def write_while_leased(self, work: Callable[[Transaction], Awaitable[Call]]) -> Call:
        """Write until the store accepts it or the lease is no longer trusted."""
        while not self._lease_lost.is_set():
            try:
                return await self._store.write_for(self._call.principal, work)
            except LeaseLost:
                self._lease_lost.set()
            except StoreUnavailable:
                log.debug("call.not_written", extra=call_facts(self._call))
                await self._clock.sleep(STORE_RETRY_SECONDS)
        raise LeaseLost

    async def write_with_retries(self, write: Callable[[], Awaitable[Call | None]]) -> None:
        """Write until the store accepts it: a full disk must not lose an observed completion.

        Once the process must end there is one more attempt. If that fails too, the next start voids the lease and recovers
        the call as one whose runner was lost.
        """
        log_level = logging.WARNING
        while True:
            is_last_attempt = self._abort_requested.is_set()
            try:
                if (written := await write()) is not None:
                    _log_released(written)
            except LeaseLost:
                log.warning("call.lease_lost", extra=call_facts(self._call))
            except StoreUnavailable:
                if not is_last_attempt:
                    log.log(log_level, "call.not_recorded", extra=call_facts(self._call))
                    log_level = logging.DEBUG  # the store says how long it is unavailable
                    await self._wait_before_retry()
                    continue
                log.error("call.left_unrecorded", extra=call_facts(self._call))  # noqa: TRY400 - the store has logged the cause
            return

    async def _wait_before_retry(self) -> None:
        """Return after the pause, or once the process must end."""
        aborted = LocalWaiter()
        self._abort_requested.add_callback(aborted.notify)
        try:
            if not self._abort_requested.is_set():
                await wait_first(self._clock.sleep(STORE_RETRY_SECONDS), aborted.wait())
        finally:
            self._abort_requested.remove_callback(aborted.notify)


def _log_released(call: Call) -> None:
    """Log that the call was parked or handed back. The recorder logs the ends."""
    if not call.is_final:
        log.info("call.parked" if call.phase is CallPhase.PARKED else "call.handed_back", extra=call_facts(call))
