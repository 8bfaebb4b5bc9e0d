"""Waits for the end of one call or of several, and passes progress on meanwhile."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence

from ringback.asyncio_tasks import end_tasks
from ringback.client.durable.call_runner import CallRunner
from ringback.client.durable.handle import CallHandle
from ringback.client.durable.local_call import Join
from ringback.client.durable.outcomes import JoinedCall
from ringback.client.models import Progress

OnProgress = Callable[[Progress], Awaitable[None] | None]


async def emit_progress(join: Join, on_progress: OnProgress | None) -> None:
    """Call `on_progress` with the progress that this join has not seen."""
    while join.unseen_progress:
        progress = join.unseen_progress.popleft()
        if on_progress is not None and inspect.isawaitable(answer := on_progress(progress)):
            await answer


async def wait_for_end(
    runner: CallRunner, join: Join, timeout_seconds: float | None, on_progress: OnProgress | None
) -> bool:
    """True once the call has ended; False after the timeout. With a timeout of 0, only the state is read."""
    scope = asyncio.timeout(timeout_seconds)
    try:
        async with scope:
            if timeout_seconds != 0:
                await runner.begin_join()
            while not runner.has_ended:
                await join.wait_for_change()
                await emit_progress(join, on_progress)
                if not runner.has_ended:
                    runner.ensure_running()  # a question ends a run, and may be answered while the callback is busy
    except TimeoutError:
        if not scope.expired():
            raise
    return runner.has_ended


async def join_several(
    handles: Sequence[CallHandle],
    join_one: Callable[[CallHandle], Awaitable[JoinedCall]],
    timeout_seconds: float | None,
    until: str,
) -> Sequence[JoinedCall]:
    """Join the calls at once, until the first or all are done, as `until` of `asyncio.wait` says, or the time is over."""
    tasks = [asyncio.ensure_future(join_one(handle)) for handle in handles]
    if not tasks:
        return []
    try:
        await asyncio.wait(tasks, timeout=timeout_seconds, return_when=until)
    finally:
        await end_tasks(tasks)
    return [
        JoinedCall(handle=handle) if task.cancelled() else task.result()
        for handle, task in zip(handles, tasks, strict=True)
    ]
