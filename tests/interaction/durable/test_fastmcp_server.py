"""Durable calls on FastMCP's tasks: a server that was not made with the SDK that we speak with."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ringback.client.durable import CallCancelled, CallHandle, DurableCaller, InputRequired
from tests.support.fastmcp_upstream import serving_fastmcp
from tests.support.limits import WAIT_SECONDS


async def request_first_call(caller: DurableCaller) -> CallHandle:
    return await caller.request_call_tool("build_report", {"seconds": 0.2}, start_timeout_seconds=WAIT_SECONDS)


async def use_other_tools(caller: DurableCaller, built: CallHandle) -> Any:
    assert (built.kind, built.rejoinable) == ("task", True)
    added = await caller.request_call_tool("add", {"first": 20, "second": 22}, start_timeout_seconds=WAIT_SECONDS)
    endless = await caller.request_call_tool("build_report", {"seconds": 3600.0}, start_timeout_seconds=WAIT_SECONDS)
    painted = await caller.request_call_tool("paint", accepts_input=True, start_timeout_seconds=WAIT_SECONDS)

    (first, second) = await caller.join_all([built, added])
    assert first.result is not None
    assert second.result is not None
    assert first.result["structuredContent"] == {"result": "built"}
    assert second.result["structuredContent"] == {"result": 42}
    assert await caller.cancel_call_tool(endless)
    with pytest.raises(CallCancelled):
        await caller.join_call_tool(endless)
    with pytest.raises(InputRequired) as asked:
        await caller.join_call_tool(painted)
    answer = {"action": "accept", "content": {"colour": "blue"}}
    await caller.answer_call_tool(painted, dict.fromkeys(asked.value.input_requests, answer))
    return await caller.join_call_tool(painted)


@pytest.mark.requirement("R09")
async def test_its_tasks_are_joined_answered_and_cancelled(tmp_path: Path) -> None:
    async with serving_fastmcp(tmp_path / "ledger") as url, DurableCaller(url) as caller:
        built = await request_first_call(caller)
        result = await asyncio.wait_for(use_other_tools(caller, built), WAIT_SECONDS)

    assert result is not None
    assert result["content"] == [{"type": "text", "text": "painted blue"}]
