"""Legacy tasks on the wire."""

import asyncio
from datetime import datetime
from pathlib import Path

import pytest

from ringback.mcp_server import legacy_tasks
from tests.interaction.gateway_tasks.conftest import RELATED, TasksHarness, running_tasks_gateway
from tests.support.engine import wait_until
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, JsonRpcErrorResponse, LegacyClientSession

STATUS = "notifications/tasks/status"
UNKNOWN = "call_00000000000000000000000000"

pytestmark = pytest.mark.requirement("R30")


async def wait_for_status(harness: TasksHarness, task_id: str, status: str, *, principal: str = "alice") -> None:
    """The call's own status, as a modern client sees it."""
    modern = await harness.make_modern_client(principal)
    async with modern.open_subscription({"taskIds": [task_id]}) as stream:
        await stream.read_message("notifications/tasks", where=lambda task: task["status"] == status)


@pytest.mark.must("L01")
async def test_the_capability_is_declared_in_the_handshake(session: LegacyClientSession) -> None:
    tasks = session.initialize_result["capabilities"]["tasks"]
    assert tasks == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}


@pytest.mark.must("L32")
async def test_tasks_are_not_listed_without_authentication(tmp_path: Path) -> None:
    async with running_tasks_gateway(tmp_path, auth="off") as harness, harness.open_legacy_session() as session:
        assert "list" not in session.initialize_result["capabilities"]["tasks"]
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await session.request("tasks/list", {})
        assert refused.value.code == -32601
        task_id, task = await harness.start_task_in_session(session)
        assert len(task_id) == len(UNKNOWN)
        task.complete_task("done")
        assert (await session.request("tasks/result", {"taskId": task_id}))["content"][0]["text"] == "done"


async def test_every_tool_of_an_upstream_may_be_called_as_a_task(harness: TasksHarness) -> None:
    for upstream in ("tasks", "plain", "legacy"):
        async with harness.open_legacy_session(upstream=upstream) as session:
            tools = (await session.request("tools/list", {}))["tools"]
            theirs = [tool for tool in tools if not tool["name"].startswith("ringback_")]
            assert {tool["execution"]["taskSupport"] for tool in theirs} == {"optional"}
    modern = await harness.make_modern_client(upstream="legacy")
    assert not any("execution" in tool for tool in (await modern.request("tools/list", {}))["tools"])


@pytest.mark.must("L04")
@pytest.mark.must("L05")
@pytest.mark.must("L06")
@pytest.mark.must("L07")
@pytest.mark.must("L11")
@pytest.mark.must("L12")
@pytest.mark.must("L14")
async def test_a_call_with_params_task_is_a_task_at_once_even_if_it_is_fast(harness: TasksHarness) -> None:
    async with harness.open_legacy_session(upstream="plain") as session:
        observed: set[str] = set()
        for _ in range(3):
            created = await session.request("tools/call", {"name": "echo", "arguments": {}, "task": {"ttl": 60000}})
            task = created["task"]
            observed.add(task["taskId"])
            assert task["status"] == "working"
            assert task["ttl"] > 60000
            assert datetime.fromisoformat(task["createdAt"]) <= datetime.fromisoformat(task["lastUpdatedAt"])
            assert created["_meta"][RELATED] == {"taskId": task["taskId"]}
            assert not {"resultType", "ttlMs", "pollIntervalMs"} & (created.keys() | task.keys())
        assert len(observed) == 3


async def test_a_call_whose_task_is_null_gets_the_plain_result(harness: TasksHarness) -> None:
    """Some clients write null for what they leave out."""
    async with harness.open_legacy_session(upstream="plain") as session:
        answer = await session.request("tools/call", {"name": "echo", "arguments": {}, "task": None})
    assert "task" not in answer
    assert answer["content"]


@pytest.mark.must("L03")
async def test_versions_without_tasks_have_no_task_methods(harness: TasksHarness) -> None:
    async with harness.open_legacy_session(upstream="plain", version="2025-06-18") as session:
        answered = await session.request("tools/call", {"name": "echo", "arguments": {}, "task": {"ttl": 60000}})
        assert answered["content"]
        assert "task" not in answered
        for method in ("tasks/get", "tasks/result", "tasks/list", "tasks/cancel"):
            with pytest.raises(JsonRpcErrorResponse) as refused:
                await session.request(method, {"taskId": UNKNOWN})
            assert refused.value.code == -32601


async def test_tasks_update_does_not_exist_in_a_session(session: LegacyClientSession) -> None:
    with pytest.raises(JsonRpcErrorResponse) as refused:
        await session.request("tasks/update", {"taskId": UNKNOWN, "inputResponses": {}})
    assert refused.value.code == -32601


async def test_an_invalid_call_creates_no_task(session: LegacyClientSession) -> None:
    impossible: tuple[Json, ...] = ({"name": "no-such-tool"}, {"name": "work", "arguments": {"n": 10**300}})
    for wanted in impossible:
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await session.request("tools/call", {**wanted, "task": {}})
        assert refused.value.code == -32602


@pytest.mark.must("L13")
async def test_a_task_is_serialized_flat(harness: TasksHarness, session: LegacyClientSession) -> None:
    task_id, task = await harness.start_task_in_session(session)
    returned = await session.request("tasks/get", {"taskId": task_id})
    assert (returned["taskId"], returned["status"]) == (task_id, "working")
    assert returned["ttl"] > 0
    assert returned["pollInterval"] > 0
    task.complete_task("done")
    await wait_for_status(harness, task_id, "completed")
    ended = await session.request("tasks/get", {"taskId": task_id})
    assert ended["status"] == "completed"
    assert not {"result", "error", "task", "pollInterval"} & ended.keys()


@pytest.mark.must("L15")
@pytest.mark.must("L16")
@pytest.mark.must("L17")
@pytest.mark.must("L26")
async def test_tasks_result_waits_and_names_its_task(harness: TasksHarness, session: LegacyClientSession) -> None:
    task_id, task = await harness.start_task_in_session(session)
    waiting = asyncio.create_task(session.request("tasks/result", {"taskId": task_id}))
    assert (await session.request("tasks/get", {"taskId": task_id}))["status"] == "working"
    assert not waiting.done()
    task.complete_task("done")
    for result in (await waiting, await session.request("tasks/result", {"taskId": task_id})):
        assert result["content"] == [{"type": "text", "text": "done"}]
        assert result["isError"] is False
        assert result["_meta"][RELATED] == {"taskId": task_id}


@pytest.mark.must("L30")
async def test_a_result_that_is_an_error_fails_its_task_and_stays_a_result(
    harness: TasksHarness, session: LegacyClientSession
) -> None:
    task_id, task = await harness.start_task_in_session(session)
    task.set_state(status="completed", result={"content": [{"type": "text", "text": "no"}], "isError": True})
    result = await session.request("tasks/result", {"taskId": task_id})
    assert result["isError"] is True
    returned = await session.request("tasks/get", {"taskId": task_id})
    assert returned["status"] == "failed"
    assert returned["statusMessage"]


@pytest.mark.must("L29")
async def test_an_error_of_the_upstream_is_the_result_of_its_task(
    harness: TasksHarness, session: LegacyClientSession
) -> None:
    task_id, task = await harness.start_task_in_session(session)
    task.set_state(status="failed", error={"code": -32042, "message": "rate limit", "data": {"retry": True}})
    with pytest.raises(JsonRpcErrorResponse) as refused:
        await session.request("tasks/result", {"taskId": task_id})
    assert (refused.value.code, refused.value.message, refused.value.data) == (-32042, "rate limit", {"retry": True})
    assert (await session.request("tasks/get", {"taskId": task_id}))["status"] == "failed"


@pytest.mark.must("L23")
@pytest.mark.must("L24")
async def test_a_task_is_cancelled_before_tasks_cancel_responds(
    harness: TasksHarness, session: LegacyClientSession
) -> None:
    task_id, task = await harness.start_task_in_session(session)
    cancelled = await session.request("tasks/cancel", {"taskId": task_id})
    assert (cancelled["taskId"], cancelled["status"]) == (task_id, "cancelled")
    await harness.tasks.wait_until(lambda: task.cancels == 1)
    for _ in range(2):
        with pytest.raises(JsonRpcErrorResponse, match="cancelled") as refused:
            await session.request("tasks/cancel", {"taskId": task_id})
        assert refused.value.code == -32602


@pytest.mark.must("L09")
@pytest.mark.must("L25")
async def test_a_cancelled_task_stays_cancelled_even_if_its_tool_ends(
    harness: TasksHarness, session: LegacyClientSession
) -> None:
    task_id, task = await harness.start_task_in_session(session)
    harness.tasks.honours_cancel = False
    try:
        await session.request("tasks/cancel", {"taskId": task_id})
        await harness.tasks.wait_until(lambda: task.cancels == 1)

        async def is_cancelled() -> bool:
            """Before that, a result of the tool would count."""
            return bool((await session.request("tasks/get", {"taskId": task_id}))["status"] == "cancelled")

        await wait_until(is_cancelled)
    finally:
        harness.tasks.honours_cancel = True
    task.complete_task("done anyway")
    with pytest.raises(JsonRpcErrorResponse) as refused:
        await session.request("tasks/result", {"taskId": task_id})
    assert (refused.value.code, refused.value.data) == (-32603, {"outcome": "cancelled", "call_id": task_id})
    assert (await session.request("tasks/get", {"taskId": task_id}))["status"] == "cancelled"


async def test_cancelling_stops_a_tool_that_runs_as_a_plain_request(harness: TasksHarness) -> None:
    async with harness.open_legacy_session(upstream="plain") as session:
        created = await session.request("tools/call", {"name": "hold", "arguments": {}, "task": {}})
        await harness.plain.wait_until_held(1)
        await session.request("tasks/cancel", {"taskId": created["task"]["taskId"]})
        await asyncio.wait_for(harness.plain.cancelled.wait(), WAIT_SECONDS)


async def test_cancelling_reaches_the_task_of_a_legacy_upstream(harness: TasksHarness) -> None:
    async with harness.open_legacy_session(upstream="legacy") as session:
        created = await session.request("tools/call", {"name": "either", "arguments": {}, "task": {}})
        upstreams = await harness.legacy.wait_for_task()
        await harness.legacy.wait_until(lambda: upstreams.polls > 0)
        await session.request("tasks/cancel", {"taskId": created["task"]["taskId"]})
        await harness.legacy.wait_until(lambda: upstreams.cancels == 1)


async def test_cancelling_a_completed_task_is_refused(harness: TasksHarness, session: LegacyClientSession) -> None:
    task_id, task = await harness.start_task_in_session(session)
    task.complete_task("done")
    await session.request("tasks/result", {"taskId": task_id})
    with pytest.raises(JsonRpcErrorResponse, match="completed") as refused:
        await session.request("tasks/cancel", {"taskId": task_id})
    assert refused.value.code == -32602


@pytest.mark.must("L27")
@pytest.mark.must("L31")
@pytest.mark.must("L33")
@pytest.mark.requirement("R25")
async def test_unknown_and_foreign_tasks_get_the_same_error(
    harness: TasksHarness, session: LegacyClientSession
) -> None:
    task_id, task = await harness.start_task_in_session(session)
    async with harness.open_legacy_session("bob") as bob:
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            words: set[str] = set()
            for wanted in (task_id, UNKNOWN, "nonsense"):
                with pytest.raises(JsonRpcErrorResponse) as refused:
                    await bob.request(method, {"taskId": wanted})
                assert refused.value.code == -32602
                words.add(refused.value.message)
            assert len(words) == 1
    assert task.cancels == 0


@pytest.mark.must("L20")
async def test_only_the_parameter_names_the_task(harness: TasksHarness, session: LegacyClientSession) -> None:
    task_id, _ = await harness.start_task_in_session(session)
    about = {RELATED: {"taskId": UNKNOWN}}
    assert (await session.request("tasks/get", {"taskId": task_id, "_meta": about}))["taskId"] == task_id


@pytest.mark.must("L21")
@pytest.mark.must("L22")
@pytest.mark.must("L34")
async def test_the_list_has_all_tasks_of_the_caller_and_no_others(
    harness: TasksHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legacy_tasks, "TASK_PAGE_SIZE", 2)
    async with (
        harness.open_legacy_session("carol", upstream="plain") as carol,
        harness.open_legacy_session("dave", upstream="plain") as dave,
    ):
        mine = [
            (await carol.request("tools/call", {"name": "echo", "arguments": {}, "task": {}}))["task"]["taskId"]
            for _ in range(5)
        ]
        await dave.request("tools/call", {"name": "echo", "arguments": {}, "task": {}})
        listed: list[str] = []
        pages, cursor = 0, {}
        while True:
            page: Json = await carol.request("tasks/list", cursor)
            listed += [task["taskId"] for task in page["tasks"]]
            pages += 1
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
        assert (sorted(listed), pages) == (sorted(mine), 3)


@pytest.mark.must("L28")
async def test_an_invalid_cursor_is_refused(session: LegacyClientSession) -> None:
    for cursor in ("nonsense", "", "x" * 1000):
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await session.request("tasks/list", {"cursor": cursor})
        assert refused.value.code == -32602


@pytest.mark.requirement("R20")
async def test_the_session_gets_task_and_progress_notifications_under_its_token(
    harness: TasksHarness, session: LegacyClientSession
) -> None:
    async with session.open_event_stream() as stream:
        task_id, task = await harness.start_task_in_session(session, _meta={"progressToken": "t-1"})
        task.set_state(status="working", statusMessage="3 of 7 pages")
        progress = (await stream.read_message("notifications/progress"))["params"]
        assert (progress["progressToken"], progress["message"]) == ("t-1", "3 of 7 pages")
        assert progress["_meta"][RELATED] == {"taskId": task_id}
        task.complete_task("done")
        ended = await stream.read_message(STATUS, where=lambda returned: returned["status"] == "completed")
        assert ended["params"]["taskId"] == task_id
        assert "pollInterval" not in ended["params"]


async def test_a_task_outlives_the_session_that_made_it(harness: TasksHarness) -> None:
    async with harness.open_legacy_session() as session:
        task_id, task = await harness.start_task_in_session(session)
    task.complete_task("done")
    await wait_for_status(harness, task_id, "completed")
    async with harness.open_legacy_session() as another:
        result = await another.request("tasks/result", {"taskId": task_id})
    assert result["content"][0]["text"] == "done"
