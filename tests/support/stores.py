"""The store of the running test, and a store that fails."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import wraps
from pathlib import Path
from typing import Final, Literal, TypeVar

import pytest

from ringback.domain.clock import Clock
from ringback.domain.errors import RowsLocked, StoreUnavailable
from ringback.domain.ports import Store, Transaction
from ringback.domain.principal import Principal
from ringback.signing.sealing import KEY_BYTES, AesGcmSealer
from ringback.storage import store_wrapper
from ringback.storage.open import open_store
from tests.support.databases import database_url

T = TypeVar("T")


def make_sealer() -> AesGcmSealer:
    return AesGcmSealer({"test": b"k" * KEY_BYTES}, current="test", random_bytes=os.urandom)


def open_test_store(folder: Path, clock: Clock) -> AbstractAsyncContextManager[Store]:
    """The store of the running test's kind for this folder, which is empty the first time. Closed at the end of the context."""
    return open_store(database_url(folder), clock=clock, sealer=make_sealer(), exclusive=True)


FOREVER: Final = sys.maxsize
"""The number of failures of a disk that stays full until the test changes it."""


class StoreWrapper(store_wrapper.StoreWrapper):
    """A store around another, which changes nothing by itself. All its writes go through `write`."""

    async def write_for(self, principal: Principal, work: Callable[[Transaction], Awaitable[T]]) -> T:
        del principal
        return await self.write(work)

    async def write_heartbeat(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self.write(work)


class FailingStore(StoreWrapper):
    """Refuses as many writes as a test says before it works again."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.refusals = 0
        self.error: Callable[[str], Exception] = StoreUnavailable
        self.refused = 0
        """The number of writes that it has refused."""

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        if self.refusals > 0:
            self.refusals -= 1
            self.refused += 1
            raise self.error("The disk is full.")
        return await super().write(work)


def name_work(work: Callable[..., object]) -> str:
    """The qualified name of a unit's function, also of one with bound arguments."""
    name: str = getattr(work, "func", work).__qualname__
    return name


def refuse_work(patch: pytest.MonkeyPatch, store: Store, method: Literal["read", "write"], name: str) -> None:
    """Make the store unavailable for the units of work with this name, and for no others."""
    run = getattr(store, method)

    async def refuse(work: Callable[[Transaction], Awaitable[T]]) -> T:
        if name_work(work).startswith(name):
            raise StoreUnavailable("The database cannot be reached.")
        result: T = await run(work)
        return result

    patch.setattr(store, method, refuse)


class FullDisk(StoreWrapper):
    """The disk has no room for the units of work with this name: what they have written is rolled back."""

    full_at: str | None = None

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        if self.full_at is None or not name_work(work).startswith(self.full_at):
            return await super().write(work)

        async def fail_at_the_end(tx: Transaction) -> T:
            await work(tx)
            raise StoreUnavailable("The disk is full.")

        return await super().write(fail_at_the_end)


class StoreWithLockedRows(StoreWrapper):
    """Rows of one principal stay locked. They are among those of each unit that is no principal's own."""

    def __init__(self, store: Store, principal: Principal) -> None:
        super().__init__(store)
        self._principal = principal

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        @wraps(work)
        async def wait_in_vain(tx: Transaction) -> T:
            await work(tx)
            raise RowsLocked("The row is locked.", waited_seconds=0.0)

        return await super().write(wait_in_vain)

    async def write_for(self, principal: Principal, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await (self.write(work) if principal == self._principal else self._store.write_for(principal, work))


class StoreWithWaitingUnits(StoreWrapper):
    """Units of work with this name wait until they are released, as for a row that another unit has locked."""

    def __init__(self, store: Store, name: str) -> None:
        super().__init__(store)
        self.waiting = 0
        self.released = asyncio.Event()
        self._name = name

    async def write(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        if name_work(work).endswith(self._name):
            self.waiting += 1
            await self.released.wait()
        return await super().write(work)
