"""One leased call and its execution."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

from ringback.domain.call import Call, CallStatus, Handle
from ringback.domain.call_rows import CallChange
from ringback.domain.clock import seconds
from ringback.domain.ports import Transaction
from ringback.runner.execution import CallExecution
from tests.support.builders import make_call
from tests.support.engine import WAIT_SECONDS, Engine

SHORT_DEADLINE_SECONDS: Final = 0.05
"""A short deadline, for tests that wait for it."""


async def lease_new_call(engine: Engine, *, deadline_in: float = 3600.0, **over: Any) -> Call:
    return await engine.lease_call(make_call(deadline_at=engine.clock.now() + seconds(deadline_in), **over))


async def lease_call_with_handle(engine: Engine, driver: str, *, deadline_in: float = -1) -> Call:
    """A call with a handle, and by default past its deadline."""
    handle = Handle(driver=driver, data={"task_id": "1"})
    return await lease_new_call(
        engine, deadline_in=deadline_in, handle=handle, dispatched_at=engine.clock.now(), runs=1
    )


async def replace_lease(engine: Engine, call: Call) -> Call:
    """Lease the call to another runner, as after a pause longer than the lease."""

    async def write_lease(tx: Transaction) -> Call:
        found = await tx.calls.get(call.id)
        assert found is not None
        taken = replace(found, lease_owner="runner-2", lease_token="lease_of_another")
        await tx.calls.update(taken, CallChange.QUEUED, expected=found.status, lease_token=None)
        return taken

    return await engine.store.write(write_lease)


@asynccontextmanager
async def executing(execution: CallExecution) -> AsyncGenerator[None]:
    """The running execution; the context ends with it."""
    running = asyncio.create_task(execution.run())
    yield
    await asyncio.wait_for(running, WAIT_SECONDS)


async def run_execution(execution: CallExecution) -> None:
    await asyncio.wait_for(execution.run(), WAIT_SECONDS)


def assert_queued_again(call: Call) -> None:
    assert (call.status, call.lease_token, call.dispatched_at, call.runs) == (CallStatus.WORKING, None, None, 0)


async def is_extended(engine: Engine, before: Call) -> bool:
    """Whether a heartbeat has extended the lease that the call had `before`."""
    return (await engine.read_call(before)).lease_until != before.lease_until
