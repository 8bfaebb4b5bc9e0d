"""From the start of a call straight into the hands of the runner, without asking the store what is queued.

    start, in its unit: its upstream has room, and nothing waits for it ──▶ the call is inserted as leased
                        else: the call is inserted as queued ──▶ what its upstream has room for is leased, in fair turns
    the unit was committed ──▶ what was leased begins: this call, or one that has waited longer
    it was not             ──▶ the places are free again

A call that was leased so is a leased one like any other: if the process dies before it was dispatched, it is queued again.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Protocol

from ringback.domain.call import Call
from ringback.domain.ports import Transaction


class LeaseQueued(Protocol):
    """For one unit of work."""

    async def __call__(self, tx: Transaction, upstream: str, /) -> Sequence[Call]:
        """Lease as much of what is queued for this upstream as it has room for. What was leased."""
        ...

    async def at_birth(self, tx: Transaction, call: Call, /) -> Call | None:
        """The new call with its lease, to be inserted so; None when it has to be queued behind others, or for want of room."""
        ...


class PostCommitHandoff:
    """Shared by who starts calls and who runs them, in one process. While nobody runs them, all are queued."""

    def __init__(self) -> None:
        self._prepare: Callable[[], LeaseQueued] | None = None

    def prepare_lease(self) -> LeaseQueued:
        """For one unit of work, to be asked for before it: a lease is counted on from before the store was asked for it."""
        return _LeaveQueued() if self._prepare is None else self._prepare()

    @contextmanager
    def attach(self, prepare: Callable[[], LeaseQueued]) -> Generator[None]:
        self._prepare = prepare
        try:
            yield
        finally:
            self._prepare = None


class _LeaveQueued:
    async def __call__(self, _tx: Transaction, _upstream: str, /) -> Sequence[Call]:
        return []

    async def at_birth(self, _tx: Transaction, _call: Call, /) -> Call | None:
        return None
