"""Recovers calls that are leased to this process although it never began to run them.

A connection that is lost during COMMIT leaves open whether the leases of that unit exist. This process then begins no
execution. If the leases exist, another process could take the calls only when they have expired, and it would not know that
nothing was sent. This process knows it.
"""

import logging
from typing import Final

from ringback.domain.call import Call, without_dispatch
from ringback.domain.clock import seconds
from ringback.domain.ports import Store, Transaction
from ringback.notifier.recorder import Recorder
from ringback.post_commit import UnusedLeases
from ringback.runner.leasing import RunnerConfig

log = logging.getLogger(__name__)

RECOVER_BATCH_SIZE: Final = 50
"""Calls that one transaction may finish: each also writes its event and its deliveries."""


class LostLeases:
    def __init__(self, *, store: Store, recorder: Recorder, unused: UnusedLeases, config: RunnerConfig) -> None:
        self._store = store
        self._recorder = recorder
        self._unused = unused
        self._config = config

    async def recover(self) -> None:
        """Queue the calls again, unless their cancellation was requested. Raises `StoreUnavailable`."""
        if self._unused.list_tokens():
            while await self._store.write(self._recover_batch) == RECOVER_BATCH_SIZE:
                pass

    async def _recover_batch(self, tx: Transaction) -> int:
        """The number of recovered calls. Only leases that no heartbeat has extended are read: an index finds these few."""
        tokens = set(self._unused.list_tokens())
        unextended = tx.now() + seconds(self._config.lease_seconds - self._config.heartbeat_seconds)
        found = await tx.call_queue.find_lease_expired(
            now=unextended, limit=RECOVER_BATCH_SIZE, owner=self._config.owner
        )
        lost = [_without_dispatch(call) for call in found if call.lease_token in tokens]
        if lost:
            log.warning("calls.lease_unused", extra={"calls": len(lost)})
        await self._recorder.recover_calls(tx, lost)
        return len(lost)


def _without_dispatch(call: Call) -> Call:
    """A lease may mark a new call as dispatched in advance; the execution that would have sent it never began."""
    return call if call.handle is not None else without_dispatch(call)
