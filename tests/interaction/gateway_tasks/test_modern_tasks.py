"""Modern tasks on the wire."""

import base64
from datetime import datetime
from typing import Any

import pytest

from ringback.domain.call_rows import Tombstone
from ringback.domain.ids import CallId
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal, Scope
from tests.interaction.gateway_tasks.conftest import TasksHarness
from tests.support.mcp_wire import TASKS, Json, JsonRpcErrorResponse, ModernClient, legacy_session
from tests.support.task_upstream import ACCEPTED_ANSWER, QUESTION

REQUIRED: Json = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
UNKNOWN = "call_00000000000000000000000000"
INPUT_REQUIRED_CALL: dict[str, Json] = {"tasks/get": {}, "tasks/update": {"inputResponses": {}}, "tasks/cancel": {}}
"""The methods of a task and their params besides the task's id."""
ENDINGS = {"result", "error", "inputRequests"}

pytestmark = pytest.mark.requirement("R30")


async def wait_for_status(modern: ModernClient, task_id: str, status: str) -> Json:
    """The task in tasks/get once it has this status; a subscription waits for it, without polling."""
    async with modern.open_subscription({"taskIds": [task_id]}) as stream:
        await stream.read_message("notifications/tasks", where=lambda task: task["status"] == status)
    return await modern.request("tasks/get", {"taskId": task_id})


async def test_the_extension_is_advertised_and_the_legacy_capability_is_not(modern: ModernClient) -> None:
    discovered = await modern.request("server/discover", {})
    assert discovered["capabilities"]["extensions"][TASKS] == {}
    assert "tasks" not in discovered["capabilities"]


@pytest.mark.must("M03")
@pytest.mark.must("M06")
@pytest.mark.must("M29")
async def test_a_slow_call_is_a_task_that_can_be_read_at_once(harness: TasksHarness, modern: ModernClient) -> None:
    created = await modern.request("tools/call", {"name": "work", "arguments": {}})
    assert created["resultType"] == "task"
    assert created["taskId"].startswith("call_")
    assert len(created["taskId"]) == len(UNKNOWN)
    assert created["status"] == "working"
    assert created["ttlMs"] > 0
    assert created["pollIntervalMs"] > 0
    assert datetime.fromisoformat(created["createdAt"]) <= datetime.fromisoformat(created["lastUpdatedAt"])
    assert ENDINGS.isdisjoint(created)
    assert not {"task", "ttl", "pollInterval", "requestState"} & created.keys()
    found = await harness.ringback.app.services.calls.get_call(await _caller(harness), created["taskId"])
    assert found.id == created["taskId"]


async def _caller(harness: TasksHarness) -> Any:
    return await harness.ringback.app.services.api_keys.authenticate_key(await harness.get_api_key("alice"))


@pytest.mark.must("M01")
async def test_a_client_that_declares_nothing_never_gets_a_task(harness: TasksHarness) -> None:
    modern = await harness.make_modern_client(upstream="plain")
    answered = await modern.request("tools/call", {"name": "echo", "arguments": {"text": "hi"}}, declare={})
    assert answered["resultType"] == "complete"
    assert "taskId" not in answered


async def test_a_legacy_task_request_is_ignored(harness: TasksHarness) -> None:
    modern = await harness.make_modern_client(upstream="plain")
    answered = await modern.request("tools/call", {"name": "echo", "arguments": {}, "task": {"ttl": 1}}, declare={})
    assert answered["resultType"] == "complete"


@pytest.mark.must("M07")
@pytest.mark.must("M13")
@pytest.mark.must("M04")
async def test_a_working_task_has_no_result_and_no_error(harness: TasksHarness, modern: ModernClient) -> None:
    task_id, _ = await harness.start_task()
    returned = await modern.request("tasks/get", {"taskId": task_id})
    assert (returned["resultType"], returned["taskId"], returned["status"]) == ("complete", task_id, "working")
    assert ENDINGS.isdisjoint(returned)


@pytest.mark.must("M10")
@pytest.mark.must("M28")
async def test_a_completed_task_has_its_result(harness: TasksHarness, modern: ModernClient) -> None:
    task_id, task = await harness.start_task()
    task.complete_task("done")
    returned = await wait_for_status(modern, task_id, "completed")
    assert returned["result"] == {"content": [{"type": "text", "text": "done"}], "isError": False}
    assert ENDINGS & returned.keys() == {"result"}
    assert "pollIntervalMs" not in returned


@pytest.mark.must("M05")
@pytest.mark.must("M27")
async def test_a_result_that_is_an_error_completes_its_task(harness: TasksHarness, modern: ModernClient) -> None:
    task_id, task = await harness.start_task()
    result = {"content": [{"type": "text", "text": "no"}], "isError": True}
    task.set_state(status="completed", result=result)
    returned = await wait_for_status(modern, task_id, "completed")
    assert returned["result"] == result


@pytest.mark.must("M12")
@pytest.mark.must("M26")
async def test_a_failed_task_has_the_upstreams_own_error(harness: TasksHarness, modern: ModernClient) -> None:
    task_id, task = await harness.start_task()
    error = {"code": -32042, "message": "rate limit", "data": {"retry": True}}
    task.set_state(status="failed", error=error)
    returned = await wait_for_status(modern, task_id, "failed")
    assert returned["error"] == error
    assert returned["statusMessage"] == "rate limit"
    assert ENDINGS & returned.keys() == {"error"}


@pytest.mark.must("M08")
@pytest.mark.must("M09")
@pytest.mark.must("M16")
@pytest.mark.must("M17")
@pytest.mark.requirement("R32")
async def test_input_requests_are_shown_and_answered_in_parts(harness: TasksHarness, modern: ModernClient) -> None:
    task_id, task = await harness.start_task()
    task.request_input("first", "second")
    requested = (await wait_for_status(modern, task_id, "input_required"))["inputRequests"]
    assert sorted(each["method"] for each in requested.values()) == ["elicitation/create"] * 2
    assert [each["params"] for each in requested.values()] == [QUESTION["params"]] * 2
    first, second = requested
    acknowledged = await modern.request("tasks/update", {"taskId": task_id, "inputResponses": {first: ACCEPTED_ANSWER}})
    assert acknowledged["resultType"] == "complete"
    assert acknowledged.keys() <= {"resultType", "_meta"}
    left = await modern.request("tasks/get", {"taskId": task_id})
    assert (left["status"], list(left["inputRequests"])) == ("input_required", [second])
    await modern.request("tasks/update", {"taskId": task_id, "inputResponses": {second: ACCEPTED_ANSWER}})
    await harness.tasks.wait_until(lambda: len(task.answers) == 2)
    assert task.answers == {"first": ACCEPTED_ANSWER, "second": ACCEPTED_ANSWER}
    await wait_for_status(modern, task_id, "working")


@pytest.mark.must("M14")
@pytest.mark.must("M15")
async def test_an_answered_key_is_never_requested_again(harness: TasksHarness, modern: ModernClient) -> None:
    task_id, task = await harness.start_task()
    observed: list[str] = []
    for upstreams_key in ("first", "second", "third"):
        task.request_input(upstreams_key)
        requested = await wait_for_status(modern, task_id, "input_required")
        (key,) = requested["inputRequests"]
        observed.append(key)
        await modern.request("tasks/update", {"taskId": task_id, "inputResponses": {key: ACCEPTED_ANSWER}})
        await harness.tasks.wait_until(lambda key=upstreams_key: key in task.answers)
        await wait_for_status(modern, task_id, "working")
    assert len(set(observed)) == 3


async def test_unrequested_answers_of_any_shape_are_ignored(harness: TasksHarness, modern: ModernClient) -> None:
    task_id, task = await harness.start_task()
    for responses in ({}, {"r9.9": ACCEPTED_ANSWER}, {"r9.9": 7, "": None}):
        acknowledged = await modern.request("tasks/update", {"taskId": task_id, "inputResponses": responses})
        assert acknowledged["resultType"] == "complete"
    task.complete_task("done")
    await wait_for_status(modern, task_id, "completed")
    await modern.request("tasks/update", {"taskId": task_id, "inputResponses": {"r1.1": ACCEPTED_ANSWER}})


async def test_an_invalid_answer_is_refused_and_the_question_stays_open(
    harness: TasksHarness, modern: ModernClient
) -> None:
    task_id, task = await harness.start_task()
    task.request_input("sure")
    requested = await wait_for_status(modern, task_id, "input_required")
    (key,) = requested["inputRequests"]
    with pytest.raises(JsonRpcErrorResponse) as refused:
        await modern.request("tasks/update", {"taskId": task_id, "inputResponses": {key: {"action": "maybe"}}})
    assert refused.value.code == -32602
    assert (await modern.request("tasks/get", {"taskId": task_id}))["inputRequests"].keys() == {key}


@pytest.mark.must("M11")
@pytest.mark.must("M19")
@pytest.mark.must("M20")
async def test_a_cancellation_is_acknowledged_before_the_task_ends(harness: TasksHarness, modern: ModernClient) -> None:
    task_id, task = await harness.start_task()
    acknowledged = await modern.request("tasks/cancel", {"taskId": task_id})
    assert acknowledged["resultType"] == "complete"
    assert acknowledged.keys() <= {"resultType", "_meta"}
    returned = await wait_for_status(modern, task_id, "cancelled")
    assert ENDINGS.isdisjoint(returned)
    assert task.cancels == 1


async def test_cancelling_an_ended_task_is_acknowledged_and_changes_nothing(
    harness: TasksHarness, modern: ModernClient
) -> None:
    task_id, task = await harness.start_task()
    task.complete_task("done")
    await wait_for_status(modern, task_id, "completed")
    assert (await modern.request("tasks/cancel", {"taskId": task_id}))["resultType"] == "complete"
    assert (await modern.request("tasks/get", {"taskId": task_id}))["status"] == "completed"


async def test_a_task_that_ignores_a_cancellation_reports_its_end(harness: TasksHarness, modern: ModernClient) -> None:
    task_id, task = await harness.start_task()
    harness.tasks.honours_cancel = False
    try:
        await modern.request("tasks/cancel", {"taskId": task_id})
        await harness.tasks.wait_until(lambda: task.cancels > 0)
    finally:
        harness.tasks.honours_cancel = True
    task.complete_task("done anyway")
    assert (await wait_for_status(modern, task_id, "completed"))["result"]["content"][0]["text"] == "done anyway"


@pytest.mark.must("M18")
async def test_a_cancelled_notification_cancels_no_task(harness: TasksHarness, modern: ModernClient) -> None:
    task_id, _ = await harness.start_task()
    returned = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "taskId": task_id}}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28"}
    key = {"authorization": f"Bearer {modern.key}"}
    assert (await harness.http.post(modern.url, json=returned, headers={**headers, **key})).status_code == 202
    call = await harness.ringback.app.services.calls.get_call(await _caller(harness), task_id)
    assert not call.cancel_requested


@pytest.mark.must("M24")
@pytest.mark.must("M30")
@pytest.mark.requirement("R25")
async def test_unknown_and_foreign_tasks_get_the_same_error(harness: TasksHarness) -> None:
    task_id, task = await harness.start_task()
    bob = await harness.make_modern_client("bob")
    for method, more in INPUT_REQUIRED_CALL.items():
        words: set[str] = set()
        for wanted in (task_id, UNKNOWN, "nonsense", "../x"):
            with pytest.raises(JsonRpcErrorResponse) as refused:
                await bob.request(method, {"taskId": wanted, **more})
            assert (refused.value.code, refused.value.status) == (-32602, 400)
            words.add(refused.value.message)
        assert len(words) == 1
    assert task.cancels == 0


async def test_an_expired_task_is_refused_like_an_unknown_one(harness: TasksHarness, modern: ModernClient) -> None:
    task_id, task = await harness.start_task()
    task.complete_task("done")
    await wait_for_status(modern, task_id, "completed")

    async def expire(tx: Transaction) -> None:
        await tx.tombstones.archive(
            Tombstone(
                call_id=CallId(task_id),
                principal=Principal("alice"),
                idempotency_key=None,
                request_hash="",
                expired_at=tx.now(),
            )
        )

    await harness.ringback.app.store.write(expire)
    for method in ("tasks/get", "tasks/cancel"):
        with pytest.raises(JsonRpcErrorResponse, match="expired") as refused:
            await modern.request(method, {"taskId": task_id})
        assert refused.value.code == -32602


@pytest.mark.must("M25")
async def test_a_request_without_the_extension_gets_the_required_capability(
    harness: TasksHarness, modern: ModernClient
) -> None:
    task_id, _ = await harness.start_task()
    for method, more in INPUT_REQUIRED_CALL.items():
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await modern.request(method, {"taskId": task_id, **more}, declare={})
        assert (refused.value.code, refused.value.status, refused.value.data) == (-32021, 400, REQUIRED)


@pytest.mark.must("M23")
async def test_a_header_with_another_task_id_is_a_mismatch(harness: TasksHarness, modern: ModernClient) -> None:
    task_id, _ = await harness.start_task()
    for name in (UNKNOWN, "", "=?base64?!!?="):
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await modern.request("tasks/get", {"taskId": task_id}, headers={"mcp-name": name})
        assert (refused.value.code, refused.value.status) == (-32020, 400)


async def test_the_name_in_the_header_may_be_encoded(harness: TasksHarness, modern: ModernClient) -> None:
    task_id, _ = await harness.start_task()
    name = f"=?base64?{base64.b64encode(task_id.encode()).decode()}?="
    assert (await modern.request("tasks/get", {"taskId": task_id}, headers={"mcp-name": name}))["taskId"] == task_id


async def test_methods_of_legacy_tasks_do_not_exist(modern: ModernClient) -> None:
    for method in ("tasks/result", "tasks/list"):
        with pytest.raises(JsonRpcErrorResponse) as refused:
            await modern.request(method, {"taskId": UNKNOWN})
        assert (refused.value.code, refused.value.status) == (-32601, 404)


@pytest.mark.requirement("R19")
async def test_the_clients_labels_are_returned_with_the_task(harness: TasksHarness, modern: ModernClient) -> None:
    names = {"ringback/clientSessionId": "s-1", "ringback/correlationId": "c-1"}
    count = len(harness.tasks.tasks)
    created = await modern.request("tools/call", {"name": "work", "arguments": {}, "_meta": names})
    await harness.tasks.wait_for_task(count + 1)  # the next test counts the upstream's tasks
    returned = await modern.request("tasks/get", {"taskId": created["taskId"]})
    for result in (created, returned):
        assert names.items() <= result["_meta"].items()
        assert result["_meta"]["ringback/callId"] == created["taskId"]


@pytest.mark.must("M22")
async def test_progress_is_the_status_message_and_no_notification(harness: TasksHarness, modern: ModernClient) -> None:
    received: list[Json] = []
    progress = {"_meta": {"progressToken": "token"}}
    count = len(harness.tasks.tasks)
    created = await modern.request("tools/call", {"name": "work", "arguments": {}, **progress}, received=received)
    task = await harness.tasks.wait_for_task(count + 1)
    async with modern.open_subscription({"taskIds": [created["taskId"]]}) as stream:
        task.set_state(status="working", statusMessage="3 of 7 pages")
        while True:
            message = await stream.read_message()
            assert message["method"] in {"notifications/subscriptions/acknowledged", "notifications/tasks"}
            if message["params"].get("statusMessage") == "3 of 7 pages":
                break
    assert received == []


async def test_a_key_that_may_start_calls_may_answer_and_cancel_their_tasks_in_both_eras(
    harness: TasksHarness,
) -> None:
    """As over REST; an OAuth client would learn of a missing scope only from status 403."""
    _, key = await harness.ringback.app.services.api_keys.create_key(
        "alice", name="test", scopes=frozenset({Scope.CALLS}), upstreams=None
    )
    url = f"{harness.url}/mcp/tasks"
    modern = ModernClient(harness.http, url, key)
    created = await modern.request("tools/call", {"name": "work", "arguments": {}})
    async with legacy_session(harness.http, url, key=key) as session:
        task = (await session.request("tools/call", {"name": "work", "task": {}}))["task"]
        assert (await session.request("tasks/cancel", {"taskId": task["taskId"]}))["status"] == "cancelled"
    assert await modern.request("tasks/update", {"taskId": created["taskId"], "inputResponses": {}})
    assert await modern.request("tasks/cancel", {"taskId": created["taskId"]})
    for method in ("tasks/update", "tasks/cancel"):
        with pytest.raises(JsonRpcErrorResponse, match="no task with this id"):
            await modern.request(method, {"taskId": UNKNOWN, "inputResponses": {}})
