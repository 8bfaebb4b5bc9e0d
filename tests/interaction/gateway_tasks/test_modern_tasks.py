"""Tasks of 2026-07-28, byte by byte: what a client sends, and what it is answered."""

import base64
from datetime import datetime
from typing import Any

import pytest

from ringback.domain.call_rows import Tombstone
from ringback.domain.ids import CallId
from ringback.domain.ports import Transaction
from ringback.domain.principal import Principal
from tests.interaction.gateway_tasks.conftest import House
from tests.support.mcp_wire import TASKS, Json, Modern, Refused
from tests.support.task_stage import QUESTION, YES

REQUIRED: Json = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
UNKNOWN = "call_00000000000000000000000000"
ASKING: dict[str, Json] = {"tasks/get": {}, "tasks/update": {"inputResponses": {}}, "tasks/cancel": {}}
"""What is asked about a task, with what it takes beside the task's id."""
ENDINGS = {"result", "error", "inputRequests"}

pytestmark = pytest.mark.requirement("R30")


async def until(modern: Modern, task_id: str, status: str) -> Json:
    """The task as tasks/get tells it once it has this status; told by a stream, so nobody polls."""
    async with modern.listening({"taskIds": [task_id]}) as stream:
        await stream.next("notifications/tasks", where=lambda task: task["status"] == status)
    return await modern.result("tasks/get", {"taskId": task_id})


async def test_the_extension_is_advertised_and_the_older_capability_is_not(modern: Modern) -> None:
    discovered = await modern.result("server/discover", {})
    assert discovered["capabilities"]["extensions"][TASKS] == {}
    assert "tasks" not in discovered["capabilities"]


@pytest.mark.must("M03")
@pytest.mark.must("M06")
@pytest.mark.must("M29")
async def test_a_call_that_takes_long_is_a_task_which_can_be_asked_for_at_once(house: House, modern: Modern) -> None:
    created = await modern.result("tools/call", {"name": "work", "arguments": {}})
    assert created["resultType"] == "task"
    assert created["taskId"].startswith("call_")
    assert len(created["taskId"]) == len(UNKNOWN)
    assert created["status"] == "working"
    assert created["ttlMs"] > 0
    assert created["pollIntervalMs"] > 0
    assert datetime.fromisoformat(created["createdAt"]) <= datetime.fromisoformat(created["lastUpdatedAt"])
    assert ENDINGS.isdisjoint(created)
    assert not {"task", "ttl", "pollInterval", "requestState"} & created.keys()
    found = await house.ringback.app.services.calls.get_call(await _caller(house), created["taskId"])
    assert found.id == created["taskId"]


async def _caller(house: House) -> Any:
    return await house.ringback.app.services.api_keys.authenticate_key(await house.key("alice"))


@pytest.mark.must("M01")
async def test_a_client_that_declares_nothing_never_gets_a_task(house: House) -> None:
    modern = await house.modern(upstream="plain")
    answered = await modern.result("tools/call", {"name": "echo", "arguments": {"text": "hi"}}, declare={})
    assert answered["resultType"] == "complete"
    assert "taskId" not in answered


async def test_asking_for_a_task_the_older_way_is_ignored(house: House) -> None:
    modern = await house.modern(upstream="plain")
    answered = await modern.result("tools/call", {"name": "echo", "arguments": {}, "task": {"ttl": 1}}, declare={})
    assert answered["resultType"] == "complete"


@pytest.mark.must("M07")
@pytest.mark.must("M13")
@pytest.mark.must("M04")
async def test_a_working_task_is_told_without_any_ending(house: House, modern: Modern) -> None:
    task_id, _ = await house.begun()
    told = await modern.result("tasks/get", {"taskId": task_id})
    assert (told["resultType"], told["taskId"], told["status"]) == ("complete", task_id, "working")
    assert ENDINGS.isdisjoint(told)


@pytest.mark.must("M10")
@pytest.mark.must("M28")
async def test_a_completed_task_has_its_result(house: House, modern: Modern) -> None:
    task_id, task = await house.begun()
    task.complete("done")
    told = await until(modern, task_id, "completed")
    assert told["result"] == {"content": [{"type": "text", "text": "done"}], "isError": False}
    assert ENDINGS & told.keys() == {"result"}
    assert "pollIntervalMs" not in told


@pytest.mark.must("M05")
@pytest.mark.must("M27")
async def test_a_result_that_is_an_error_completes_its_task(house: House, modern: Modern) -> None:
    task_id, task = await house.begun()
    result = {"content": [{"type": "text", "text": "no"}], "isError": True}
    task.tell(status="completed", result=result)
    told = await until(modern, task_id, "completed")
    assert told["result"] == result


@pytest.mark.must("M12")
@pytest.mark.must("M26")
async def test_a_failed_task_has_the_upstreams_own_error(house: House, modern: Modern) -> None:
    task_id, task = await house.begun()
    error = {"code": -32042, "message": "rate limit", "data": {"retry": True}}
    task.tell(status="failed", error=error)
    told = await until(modern, task_id, "failed")
    assert told["error"] == error
    assert told["statusMessage"] == "rate limit"
    assert ENDINGS & told.keys() == {"error"}


@pytest.mark.must("M08")
@pytest.mark.must("M09")
@pytest.mark.must("M16")
@pytest.mark.must("M17")
@pytest.mark.requirement("R32")
async def test_questions_are_told_and_answered_in_parts(house: House, modern: Modern) -> None:
    task_id, task = await house.begun()
    task.ask("first", "second")
    asked = (await until(modern, task_id, "input_required"))["inputRequests"]
    assert sorted(each["method"] for each in asked.values()) == ["elicitation/create"] * 2
    assert [each["params"] for each in asked.values()] == [QUESTION["params"]] * 2
    first, second = asked
    acknowledged = await modern.result("tasks/update", {"taskId": task_id, "inputResponses": {first: YES}})
    assert acknowledged["resultType"] == "complete"
    assert acknowledged.keys() <= {"resultType", "_meta"}
    left = await modern.result("tasks/get", {"taskId": task_id})
    assert (left["status"], list(left["inputRequests"])) == ("input_required", [second])
    await modern.result("tasks/update", {"taskId": task_id, "inputResponses": {second: YES}})
    await house.tasks.until(lambda: len(task.answers) == 2)
    assert task.answers == {"first": YES, "second": YES}
    await until(modern, task_id, "working")


@pytest.mark.must("M14")
@pytest.mark.must("M15")
async def test_a_key_that_was_answered_is_never_asked_again(house: House, modern: Modern) -> None:
    task_id, task = await house.begun()
    seen: list[str] = []
    for upstreams_key in ("first", "second", "third"):
        task.ask(upstreams_key)
        asked = await until(modern, task_id, "input_required")
        (key,) = asked["inputRequests"]
        seen.append(key)
        await modern.result("tasks/update", {"taskId": task_id, "inputResponses": {key: YES}})
        await house.tasks.until(lambda key=upstreams_key: key in task.answers)
        await until(modern, task_id, "working")
    assert len(set(seen)) == 3


async def test_answers_that_nobody_asked_for_are_ignored_whatever_they_are(house: House, modern: Modern) -> None:
    task_id, task = await house.begun()
    for responses in ({}, {"r9.9": YES}, {"r9.9": 7, "": None}):
        acknowledged = await modern.result("tasks/update", {"taskId": task_id, "inputResponses": responses})
        assert acknowledged["resultType"] == "complete"
    task.complete("done")
    await until(modern, task_id, "completed")
    await modern.result("tasks/update", {"taskId": task_id, "inputResponses": {"r1.1": YES}})


async def test_an_answer_that_is_none_is_refused_and_the_question_stays(house: House, modern: Modern) -> None:
    task_id, task = await house.begun()
    task.ask("sure")
    asked = await until(modern, task_id, "input_required")
    (key,) = asked["inputRequests"]
    with pytest.raises(Refused) as refused:
        await modern.result("tasks/update", {"taskId": task_id, "inputResponses": {key: {"action": "maybe"}}})
    assert refused.value.code == -32602
    assert (await modern.result("tasks/get", {"taskId": task_id}))["inputRequests"].keys() == {key}


@pytest.mark.must("M11")
@pytest.mark.must("M19")
@pytest.mark.must("M20")
async def test_cancelling_is_acknowledged_before_it_is_true(house: House, modern: Modern) -> None:
    task_id, task = await house.begun()
    acknowledged = await modern.result("tasks/cancel", {"taskId": task_id})
    assert acknowledged["resultType"] == "complete"
    assert acknowledged.keys() <= {"resultType", "_meta"}
    told = await until(modern, task_id, "cancelled")
    assert ENDINGS.isdisjoint(told)
    assert task.cancels == 1


async def test_cancelling_what_has_ended_is_acknowledged_and_changes_nothing(house: House, modern: Modern) -> None:
    task_id, task = await house.begun()
    task.complete("done")
    await until(modern, task_id, "completed")
    assert (await modern.result("tasks/cancel", {"taskId": task_id}))["resultType"] == "complete"
    assert (await modern.result("tasks/get", {"taskId": task_id}))["status"] == "completed"


async def test_a_task_that_will_not_stop_says_how_it_ended(house: House, modern: Modern) -> None:
    task_id, task = await house.begun()
    house.tasks.obeys = False
    try:
        await modern.result("tasks/cancel", {"taskId": task_id})
        await house.tasks.until(lambda: task.cancels > 0)
    finally:
        house.tasks.obeys = True
    task.complete("done anyway")
    assert (await until(modern, task_id, "completed"))["result"]["content"][0]["text"] == "done anyway"


@pytest.mark.must("M18")
async def test_a_cancelled_notification_cancels_no_task(house: House, modern: Modern) -> None:
    task_id, _ = await house.begun()
    told = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1, "taskId": task_id}}
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2026-07-28"}
    key = {"authorization": f"Bearer {modern.key}"}
    assert (await house.http.post(modern.url, json=told, headers={**headers, **key})).status_code == 202
    call = await house.ringback.app.services.calls.get_call(await _caller(house), task_id)
    assert not call.cancel_requested


@pytest.mark.must("M24")
@pytest.mark.must("M30")
@pytest.mark.requirement("R25")
async def test_unknown_and_foreign_tasks_are_refused_in_the_same_words(house: House) -> None:
    task_id, task = await house.begun()
    bob = await house.modern("bob")
    for method, more in ASKING.items():
        words: set[str] = set()
        for wanted in (task_id, UNKNOWN, "nonsense", "../x"):
            with pytest.raises(Refused) as refused:
                await bob.result(method, {"taskId": wanted, **more})
            assert (refused.value.code, refused.value.status) == (-32602, 400)
            words.add(refused.value.message)
        assert len(words) == 1
    assert task.cancels == 0


async def test_an_expired_task_is_refused_like_an_unknown_one(house: House, modern: Modern) -> None:
    task_id, task = await house.begun()
    task.complete("done")
    await until(modern, task_id, "completed")

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

    await house.ringback.app.store.write(expire)
    for method in ("tasks/get", "tasks/cancel"):
        with pytest.raises(Refused, match="expired") as refused:
            await modern.result(method, {"taskId": task_id})
        assert refused.value.code == -32602


@pytest.mark.must("M25")
async def test_who_does_not_declare_the_extension_with_the_request_is_told_what_is_required(
    house: House, modern: Modern
) -> None:
    task_id, _ = await house.begun()
    for method, more in ASKING.items():
        with pytest.raises(Refused) as refused:
            await modern.result(method, {"taskId": task_id, **more}, declare={})
        assert (refused.value.code, refused.value.status, refused.value.data) == (-32021, 400, REQUIRED)


@pytest.mark.must("M23")
async def test_a_name_in_the_header_that_is_not_the_tasks_is_a_mismatch(house: House, modern: Modern) -> None:
    task_id, _ = await house.begun()
    for name in (UNKNOWN, "", "=?base64?!!?="):
        with pytest.raises(Refused) as refused:
            await modern.result("tasks/get", {"taskId": task_id}, headers={"mcp-name": name})
        assert (refused.value.code, refused.value.status) == (-32020, 400)


async def test_the_name_in_the_header_may_be_encoded(house: House, modern: Modern) -> None:
    task_id, _ = await house.begun()
    name = f"=?base64?{base64.b64encode(task_id.encode()).decode()}?="
    assert (await modern.result("tasks/get", {"taskId": task_id}, headers={"mcp-name": name}))["taskId"] == task_id


async def test_methods_of_the_older_tasks_do_not_exist(modern: Modern) -> None:
    for method in ("tasks/result", "tasks/list"):
        with pytest.raises(Refused) as refused:
            await modern.result(method, {"taskId": UNKNOWN})
        assert (refused.value.code, refused.value.status) == (-32601, 404)


@pytest.mark.requirement("R19")
async def test_the_clients_names_come_back_with_the_task(house: House, modern: Modern) -> None:
    names = {"ringback/clientSessionId": "s-1", "ringback/correlationId": "c-1"}
    count = len(house.tasks.tasks)
    created = await modern.result("tools/call", {"name": "work", "arguments": {}, "_meta": names})
    await house.tasks.task(count + 1)  # the next test counts the upstream's tasks, too
    told = await modern.result("tasks/get", {"taskId": created["taskId"]})
    for result in (created, told):
        assert names.items() <= result["_meta"].items()
        assert result["_meta"]["ringback/callId"] == created["taskId"]


@pytest.mark.must("M22")
async def test_progress_is_the_status_message_and_no_notification(house: House, modern: Modern) -> None:
    heard: list[Json] = []
    progress = {"_meta": {"progressToken": "token"}}
    count = len(house.tasks.tasks)
    created = await modern.result("tools/call", {"name": "work", "arguments": {}, **progress}, heard=heard)
    task = await house.tasks.task(count + 1)
    async with modern.listening({"taskIds": [created["taskId"]]}) as stream:
        task.tell(status="working", statusMessage="3 of 7 pages")
        while True:
            message = await stream.next()
            assert message["method"] in {"notifications/subscriptions/acknowledged", "notifications/tasks"}
            if message["params"].get("statusMessage") == "3 of 7 pages":
                break
    assert heard == []
