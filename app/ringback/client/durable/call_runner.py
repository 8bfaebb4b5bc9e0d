"""Runs one call in this process for as long as that is needed: a task that starts it, and follows it for the joins.

A call that the target keeps is followed only while a join waits. A call that needs this process, because its response comes on
the connection that sent the request, is followed until it ends.
"""

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from ringback.asyncio_tasks import end_tasks
from ringback.client.durable.errors import DurableCallError, UnknownHandle
from ringback.client.durable.local_call import LocalCall
from ringback.client.durable.record import CallRecord
from ringback.client.durable.target import CallTarget
from ringback.protocol.upstream_logins import LOGIN_REQUEST_KEY


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
        self._user_count = 0
        self.failure: BaseException | None = None
        """Why the last run ended early."""

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def holds_connection(self) -> bool:
        """Whether the response to the request comes on a connection of this task, or the next round is about to be sent."""
        record = self.call.record
        kind = None if record.position is None else record.position.kind
        is_streamed_here = self._has_begun_here and kind == "stream"
        sends_next_round = kind == "mrtr" and not record.input_requests
        return self.is_running and (self.call.has_lease or is_streamed_here or sends_next_round)

    @property
    def has_ended(self) -> bool:
        """Whether a join is over: the call has ended, asks for input, or cannot be followed."""
        record = self.call.record
        failed = self.failure is not None and not self.is_running
        return record.completion is not None or bool(record.input_requests) or failed

    @contextmanager
    def in_use(self) -> Generator[None]:
        """Within this block, a request or a join needs the runner. At its end the call is not followed on, unless others do."""
        self._user_count += 1
        try:
            yield
        finally:
            self._user_count -= 1
            self._release_if_idle()

    async def begin_join(self) -> None:
        """Follow the call from now on. Questions in its record may have been answered elsewhere, such as in the dashboard."""
        await self._forget_login_request()
        if self.call.record.completion is None and self.call.record.input_requests:
            await self._target.check_questions(self.call)
        self.ensure_running()

    async def _forget_login_request(self) -> None:
        """Forget that the server required a login, because no answer here says when it is done. The next request finds out."""

        def forget(record: CallRecord) -> dict[str, Any]:
            """Leaves what the tool has asked another process since the record was last read here."""
            requests = record.input_requests
            return {"input_requests": {key: asked for key, asked in requests.items() if key != LOGIN_REQUEST_KEY}}

        record = self.call.record
        if record.completion is None and LOGIN_REQUEST_KEY in record.input_requests:
            await self.call.save_changes(forget)

    def ensure_running(self) -> None:
        """Start the task, unless it runs or the call has ended."""
        record = self.call.record
        if self.is_running or record.completion is not None or record.input_requests:
            return
        self._has_begun_here = self._has_begun_here or record.position is None
        self.failure = None
        self._task = asyncio.create_task(self._run(), name=f"ringback call {record.handle.id}")
        self._tasks.add(self._task)
        self._task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        # If the state no longer holds the call, it is not followed any more: the joins raise why.
        tasks = [
            asyncio.create_task(self._target.run_call(self.call)),
            asyncio.create_task(self.call.save_periodically()),
            asyncio.create_task(self.call.renew_lease()),
            asyncio.create_task(self._release_when_kept()),
        ]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in ended:
                task.result()
        except Exception as error:  # noqa: BLE001 - the joins and the request raise it
            self.failure = error
        except asyncio.CancelledError:
            self.failure = DurableCallError(
                "This caller stopped waiting for the call: it was closed, or forgot the call."
            )
            raise
        finally:
            try:
                await self._stop_following(tasks)
            finally:  # `stop` may cancel this too
                self._task = None
                self.call.started.set()
                self.call.notify_joins()
                self._release_if_idle()

    async def _release_when_kept(self) -> None:
        """Stop following once the target keeps the call, if nothing needs it: its request may have given up before."""
        with self.call.join() as changes:
            while not self.call.is_kept:
                await changes.wait_for_change()
        self._release_if_idle()
        await asyncio.Event().wait()  # from now on, the end of its last user releases it

    async def _stop_following(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Save the newest progress for the next join, which may be elsewhere, and end the lease of this process."""
        await end_tasks(tasks)
        with suppress(Exception):  # a state that cannot be written; the lease ends by itself
            await self.call.save_rest()

    def _release_if_idle(self) -> None:
        """Stop following a call that nothing here needs."""
        if self._user_count > 0 or self.holds_connection or self.call.has_unsaved_end:
            return
        if self._task is not None:
            self._task.cancel()
        self._on_idle(self)

    async def stop(self) -> None:
        """Stop following the call. A call that needs this process is cancelled at the target."""
        if (task := self._task) is not None:
            task.cancel()
            await asyncio.wait([task])
        elif self.call.has_unsaved_end:
            with suppress(UnknownHandle):
                await self.call.refresh()
