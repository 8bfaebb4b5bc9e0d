"""An execution that opens its session while the transaction that inserts its call commits, and sends nothing until then.

    lease_new ──▶ COMMIT (fsync) ──────────────────────────┬─ committed ────▶ `confirm`: the request is sent
                    └─▶ `begin`: span, session, driver ────┴─ rolled back ──▶ `cancel`: the execution ends, and writes nothing

A call whose client waits for the result is leased and marked as dispatched in the transaction that inserts it, if its request
can be sent right after it: the upstream has an open session, and nothing else is to be done first. Then a commit in the middle
is left out, and half a millisecond of the execution passes beside the fsync. If the process dies between the commit and the
request, the call ends as `unknown`: the store does not say that nothing was sent.
"""

import asyncio
from collections.abc import Callable

CreateExecution = Callable[[asyncio.Event], "asyncio.Task[None] | None"]
"""Begins an execution that waits for the event before it uses the call's row or its upstream. None if none can begin any more:
then the lease expires, or the janitor voids it at the next start."""


class HeldExecution:
    def __init__(self, create_execution: CreateExecution, *, release_capacity: Callable[[], None]) -> None:
        self._create_execution = create_execution
        self._release_capacity = release_capacity
        self._task: asyncio.Task[None] | None = None
        self._committed = asyncio.Event()
        self._has_begun = False

    def begin(self) -> None:
        """The transaction that leases the call is about to commit."""
        self._has_begun = True
        self._task = self._create_execution(self._committed)

    def confirm(self) -> None:
        """The transaction is committed. The capacity for the call is free when the execution ends."""
        self._committed.set()
        if not self._has_begun:
            self.begin()
        if self._task is None:
            self._release_capacity()
        else:
            # A callback, because a task that is cancelled before its first step runs no `finally`.
            self._task.add_done_callback(lambda _: self._release_capacity())

    def cancel(self) -> None:
        """The transaction is rolled back. `CallLeasing` frees the capacity that it reserved."""
        if self._task is not None:
            self._task.cancel()


async def wait_for_commit(committed: asyncio.Event) -> None:
    """Return after the commit, at the latest one turn of the event loop after the step of the task that waits for its response.

    In that step it subscribes to the notifications of its call. An execution that began during the commit returns in the same
    turn (`storage.units.complete_units`), and the loop reads what the upstream sends in a later one. Any other execution
    returns after that step.
    """
    if committed.is_set():
        await asyncio.sleep(0)
    else:
        await committed.wait()
