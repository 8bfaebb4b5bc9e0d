"""Runs one call in this process for as long as that is needed: a task that starts it, and follows it for the joins.

A call that the target keeps is followed only while a join waits. A call that needs this process, because its response comes on
the connection that sent the request, is followed until it ends.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.target import CallTarget

_KINDS_ON_A_CONNECTION: Final = frozenset({"plain", "stream", "mrtr"})


class CallRunner:
    def __init__(
        self,
        call: LocalCall,
        target: CallTarget,
        *,
        tasks: set[asyncio.Task[None]],
        on_idle: Callable[["CallRunner"], None],
    ) -> None:
        """`tasks` gets the tasks that have not ended. `on_idle` is called when nothing needs the runner any more."""
        self.call = call
        self._target = target
        self._tasks = tasks
        self._on_idle = on_idle
        self._task: asyncio.Task[None] | None = None
        self._has_begun_here = False
        self.failure: BaseException | None = None
        """Why the last run ended early."""

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def holds_connection(self) -> bool:
        """Whether the response to the request comes on a connection of this task."""
        position = self.call.record.position
        on_connection = position is None or position.kind in _KINDS_ON_A_CONNECTION
        return self.is_running and self._has_begun_here and on_connection

    @property
    def has_ended(self) -> bool:
        """Whether a join is over: the call has ended, asks for input, or cannot be followed."""
        record = self.call.record
        failed = self.failure is not None and not self.is_running
        return record.completion is not None or bool(record.input_requests) or failed

    def ensure_running(self) -> None:
        """Start the task, unless it runs or the call has ended."""
        record = self.call.record
        if self.is_running or record.completion is not None or record.input_requests:
            return
        self._has_begun_here = self._has_begun_here or record.position is None or bool(record.input_responses)
        self.failure = None
        self._task = asyncio.create_task(self._run(), name=f"ringback call {record.handle.id}")
        self._tasks.add(self._task)
        self._task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        saving = asyncio.create_task(self.call.save_periodically())
        try:
            await self._target.run_call(self.call)
        except Exception as error:  # noqa: BLE001 - the joins and the request raise it
            self.failure = error
        finally:
            saving.cancel()
            await asyncio.gather(saving, return_exceptions=True)
            self._task = None
            self.call.started.set()
            self.call.notify_joins()
            self.release_if_idle()

    def release_if_idle(self) -> None:
        """Stop following a call that nothing here needs."""
        if self.call.join_count > 0 or self.holds_connection:
            return
        if self._task is not None:
            self._task.cancel()
        self._on_idle(self)

    async def stop(self) -> None:
        """Stop following the call. A call that needs this process is cancelled at the target."""
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.wait([task])
