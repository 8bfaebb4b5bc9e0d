"""An execution that begins during the commit of its call goes on after the commit."""

import asyncio

import pytest

from ringback.domain.ports import Transaction
from ringback.runner.held_execution import HeldExecution, wait_for_commit
from ringback.storage.units import UnitOfWork, complete_units
from tests.support.limits import WAIT_SECONDS

pytestmark = pytest.mark.requirement("R35")


@pytest.mark.parametrize("is_late", [False, True])
async def test_request_is_sent_first_and_its_caller_continues_before_the_loop_reads_a_response(
    *, is_late: bool
) -> None:
    """The caller subscribes to the notifications of its call then, which the upstream may send at once."""
    order: list[str] = []
    loop = asyncio.get_running_loop()
    executions: list[asyncio.Task[None]] = []

    async def execute(committed: asyncio.Event) -> None:
        await wait_for_commit(committed)
        order.append("request")
        loop.call_soon(order.append, "response")  # the next turn, at the earliest

    def create(committed: asyncio.Event) -> asyncio.Task[None]:
        executions.append(asyncio.create_task(execute(committed)))
        return executions[0]

    async def start(unit: UnitOfWork) -> None:
        await unit.done
        order.append("caller")

    held = HeldExecution(create, release_capacity=lambda: order.append("capacity"))
    unit = UnitOfWork(_no_work, loop.create_future(), committing_actions=[held.begin], commit_actions=[held.confirm])
    starting = asyncio.create_task(start(unit))
    if not is_late:
        unit.run_committing_actions()
    await asyncio.sleep(0)
    complete_units([unit])
    await asyncio.wait_for(asyncio.gather(starting, *executions), WAIT_SECONDS)
    await asyncio.sleep(0)

    sent = ["caller", "request"] if is_late else ["request", "caller"]
    assert [each for each in order if each != "capacity"] == [*sent, "response"]
    assert "capacity" in order


async def _no_work(_tx: Transaction) -> None: ...
