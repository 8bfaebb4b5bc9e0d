"""An execution that begins during the commit of its call goes on after the commit."""

import asyncio

import pytest

from ringback.runner.held_execution import HeldExecution, wait_for_commit
from tests.support.limits import WAIT_SECONDS

pytestmark = pytest.mark.requirement("R35")


@pytest.mark.parametrize("is_late", [False, True])
async def test_the_task_that_waits_for_the_commit_continues_before_the_execution(*, is_late: bool) -> None:
    """It subscribes to the notifications of its call: the request names the level of its log messages."""
    order: list[str] = []
    stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def execute(committed: asyncio.Event) -> None:
        if is_late:
            await stored  # its next step is scheduled before that of the caller
        await wait_for_commit(committed)
        order.append("execution")

    async def start() -> None:
        await stored
        order.append("caller")

    executions: list[asyncio.Task[None]] = []

    def create(committed: asyncio.Event) -> asyncio.Task[None]:
        executions.append(asyncio.create_task(execute(committed)))
        return executions[0]

    held = HeldExecution(create, release_capacity=lambda: order.append("capacity"))
    held.begin()
    starting = asyncio.create_task(start())
    await asyncio.sleep(0)
    stored.set_result(None)
    held.confirm()
    await asyncio.wait_for(asyncio.gather(starting, *executions), WAIT_SECONDS)
    await asyncio.sleep(0)

    assert order == ["caller", "execution", "capacity"]
