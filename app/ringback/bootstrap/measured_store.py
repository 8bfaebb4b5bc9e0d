"""A store whose commits are timed, for the metric `ringback_store_write_seconds`."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ringback.domain.clock import Clock
from ringback.domain.ports import Store, Transaction
from ringback.measurements import Histogram
from ringback.storage.store_wrapper import StoreWrapper

T = TypeVar("T")


class MeasuredStore(StoreWrapper):
    def __init__(self, store: Store, *, clock: Clock, write_seconds: Histogram) -> None:
        super().__init__(store)
        self._clock = clock
        self._write_seconds = write_seconds

    async def _run_write(
        self,
        write: Callable[[Callable[[Transaction], Awaitable[T]]], Awaitable[T]],
        work: Callable[[Transaction], Awaitable[T]],
    ) -> T:
        """A unit that raises is not measured, because nothing was committed for it."""
        started = self._clock.monotonic()
        value = await write(work)
        self._write_seconds.observe(self._clock.monotonic() - started)
        return value
