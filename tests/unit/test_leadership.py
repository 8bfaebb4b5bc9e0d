"""A node has a duty for as long as it may trust its lease, and no longer."""

import asyncio
from typing import Any, cast

import pytest

from ringback.domain.errors import StoreUnavailable
from ringback.domain.ports import Store
from ringback.leadership import Leadership
from ringback.storage.signals import LocalSignals
from tests.support.clock import ManualClock


class LeaseStore:
    """Grants a lease once, and is unavailable to the next request, at which the test ends."""

    is_exclusive = False

    def __init__(self) -> None:
        self.signals = LocalSignals()
        self.stop = asyncio.Event()
        self.released = 0
        self._is_granted = False

    async def write_heartbeat(self, _: Any) -> bool:
        if self._is_granted:
            self.stop.set()
            raise StoreUnavailable("The database cannot be reached.")
        self._is_granted = True
        return True

    async def write(self, _: Any) -> None:
        self.released += 1


async def test_a_node_that_released_its_lease_does_not_trust_it_while_the_store_is_unavailable() -> None:
    """Another node has the duty since the release."""
    store, begun = LeaseStore(), 0
    leadership = Leadership(store=cast("Store", store), clock=ManualClock(), owner="first", duty="clean")

    async def fail() -> None:
        nonlocal begun
        begun += 1
        raise LookupError("a defect of the work")

    with pytest.raises(LookupError):
        await leadership.run_as_leader(fail, store.stop)
    await leadership.run_as_leader(fail, store.stop)

    assert (begun, store.released) == (1, 1)
