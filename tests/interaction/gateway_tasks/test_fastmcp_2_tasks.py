"""The client of FastMCP 2.14 calls a tool as a task: `await client.call_tool(…, task=True)`.

It sends `params.task` of 2025-11-25, and reads the response with the SDK's `CallToolResult`, whose `content` is required. The
task's id is in `_meta['modelcontextprotocol.io/task']`, a key of an earlier draft; without it, the response counts as the
result. The messages are those of FastMCP 2.14.5 with SDK 1.26.
"""

import pytest

from tests.interaction.gateway_tasks.conftest import TasksHarness
from tests.support.mcp_wire import Json, LegacyClientSession

DRAFT = "modelcontextprotocol.io/task"
STATUS = "notifications/tasks/status"

pytestmark = pytest.mark.requirement("R30")


async def start_draft_task(session: LegacyClientSession, tool: str) -> str:
    """What `client.call_tool(tool, task=True)` sends, and the id that it reads."""
    params: Json = {"name": tool, "arguments": {}, "task": {"ttl": 60000}, "_meta": {"progressToken": 1}}
    created = await session.request("tools/call", params)
    assert [block["type"] for block in created["content"]] == ["text"]
    assert created.get("isError", False) is False
    assert created["_meta"][DRAFT]["status"] == "working"
    task_id: str = created["_meta"][DRAFT]["taskId"]
    assert created["task"]["taskId"] == task_id
    return task_id


async def test_its_task_is_named_where_it_looks_and_gives_the_result(
    harness: TasksHarness, session: LegacyClientSession
) -> None:
    count = len(harness.tasks.tasks)
    async with session.open_event_stream() as stream:
        task_id = await start_draft_task(session, "work")
        running = await session.request("tasks/get", {"taskId": task_id})
        (await harness.tasks.wait_for_task(count + 1)).complete_task("done")
        ended = await stream.read_message(STATUS, where=lambda params: params["status"] == "completed")
    result = await session.request("tasks/result", {"taskId": task_id})

    assert {"taskId", "status", "createdAt", "lastUpdatedAt", "ttl"} <= running.keys() & ended["params"].keys()
    assert result["content"] == [{"type": "text", "text": "done"}]


async def test_its_task_is_cancelled_and_listed(session: LegacyClientSession) -> None:
    task_id = await start_draft_task(session, "work")

    assert (await session.request("tasks/cancel", {"taskId": task_id}))["status"] == "cancelled"
    assert task_id in {task["taskId"] for task in (await session.request("tasks/list", {"limit": 50}))["tasks"]}


async def test_version_2_14_0_declares_its_draft_in_the_handshake(harness: TasksHarness) -> None:
    async with harness.open_legacy_session(upstream="plain", capabilities={"experimental": {"tasks": {}}}) as session:
        task_id = await start_draft_task(session, "echo")
        assert (await session.request("tasks/result", {"taskId": task_id}))["content"]


async def test_a_resource_asked_for_as_a_task_is_answered_at_once(harness: TasksHarness) -> None:
    """`client.read_resource(…, task=True)`: it takes a response without a task id for the result."""
    async with harness.open_legacy_session(upstream="notes") as session:
        (listed, *_) = (await session.request("resources/list", {}))["resources"]
        read = await session.request("resources/read", {"uri": listed["uri"], "task": {"ttl": 60000}})

    assert read["contents"]
    assert DRAFT not in read.get("_meta", {})
