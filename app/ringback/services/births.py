"""From the start of a call straight into the hands of the runner, without asking the store what is queued.

    start, in its unit: the call is inserted as queued ──▶ what its upstream has room for is leased, in fair turns
    the unit was committed ──▶ what was leased begins: this call, or one that has waited longer
    it was not             ──▶ the places are free again

A call that was leased so is a leased one like any other: if the process dies before it was dispatched, it is queued again.
"""

from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager

from ringback.domain.call import Call
from ringback.domain.ports import Transaction

LeaseQueued = Callable[[Transaction, str], Awaitable[Sequence[Call]]]
"""In a unit of work: lease as much of what is queued for this upstream as it has room for. What was leased."""


class Births:
    """Shared by who starts calls and who runs them, in one process. While nobody runs them, all are queued."""

    def __init__(self) -> None:
        self._prepare: Callable[[], LeaseQueued] | None = None

    def prepare(self) -> LeaseQueued:
        """For one unit of work, to be asked for before it: a lease is counted on from before the store was asked for it."""
        return _leave_queued if self._prepare is None else self._prepare()

    @contextmanager
    def open(self, prepare: Callable[[], LeaseQueued]) -> Generator[None]:
        self._prepare = prepare
        try:
            yield
        finally:
            self._prepare = None


async def _leave_queued(_tx: Transaction, _upstream: str) -> Sequence[Call]:
    return []
