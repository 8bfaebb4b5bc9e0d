"""Tasks of 2025-11-25, byte by byte: what a client sends, and what it is answered."""

import asyncio
from datetime import datetime
from pathlib import Path

import pytest

from ringback.mcp_server import legacy_questions, legacy_tasks
from tests.interaction.gateway_tasks.conftest import House, opened_house
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, Refused, Session
from tests.support.task_stage import QUESTION, YES

RELATED = "io.modelcontextprotocol/related-task"
STATUS = "notifications/tasks/status"
UNKNOWN = "call_00000000000000000000000000"

pytestmark = pytest.mark.requirement("R30")


async def until(house: House, task_id: str, status: str, *, principal: str = "alice") -> None:
    """The call's own status, which a modern client hears of."""
    modern = await house.modern(principal)
    async with modern.listening({"taskIds": [task_id]}) as stream:
        await stream.next("notifications/tasks", where=lambda task: task["status"] == status)


@pytest.mark.must("L01")
async def test_the_capability_is_declared_in_the_handshake(session: Session) -> None:
    tasks = session.greeting["capabilities"]["tasks"]
    assert tasks == {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}


@pytest.mark.must("L32")
async def test_where_nobody_is_told_apart_tasks_are_not_listed(tmp_path: Path) -> None:
    async with opened_house(tmp_path, auth="off") as house, house.session() as session:
        assert "list" not in session.greeting["capabilities"]["tasks"]
        with pytest.raises(Refused) as refused:
            await session.result("tasks/list", {})
        assert refused.value.code == -32601
        task_id, task = await house.begun_in(session)
        assert len(task_id) == len(UNKNOWN)
        task.complete("done")
        assert (await session.result("tasks/result", {"taskId": task_id}))["content"][0]["text"] == "done"


async def test_every_tool_of_an_upstream_may_be_called_as_a_task(house: House) -> None:
    for upstream in ("tasks", "plain", "legacy"):
        async with house.session(upstream=upstream) as session:
            tools = (await session.result("tools/list", {}))["tools"]
            theirs = [tool for tool in tools if not tool["name"].startswith("ringback_")]
            assert {tool["execution"]["taskSupport"] for tool in theirs} == {"optional"}
    modern = await house.modern(upstream="legacy")
    assert not any("execution" in tool for tool in (await modern.result("tools/list", {}))["tools"])


@pytest.mark.must("L04")
@pytest.mark.must("L05")
@pytest.mark.must("L06")
@pytest.mark.must("L07")
@pytest.mark.must("L11")
@pytest.mark.must("L12")
@pytest.mark.must("L14")
async def test_a_call_with_a_task_is_a_task_at_once_also_when_it_takes_no_time(house: House) -> None:
    async with house.session(upstream="plain") as session:
        seen: set[str] = set()
        for _ in range(3):
            created = await session.result("tools/call", {"name": "echo", "arguments": {}, "task": {"ttl": 60000}})
            task = created["task"]
            seen.add(task["taskId"])
            assert task["status"] == "working"
            assert task["ttl"] > 60000
            assert datetime.fromisoformat(task["createdAt"]) <= datetime.fromisoformat(task["lastUpdatedAt"])
            assert created["_meta"][RELATED] == {"taskId": task["taskId"]}
            assert not {"content", "resultType", "ttlMs", "pollIntervalMs"} & (created.keys() | task.keys())
        assert len(seen) == 3


@pytest.mark.must("L03")
async def test_versions_without_tasks_know_none_of_it(house: House) -> None:
    async with house.session(upstream="plain", version="2025-06-18") as session:
        answered = await session.result("tools/call", {"name": "echo", "arguments": {}, "task": {"ttl": 60000}})
        assert answered["content"]
        assert "task" not in answered
        for method in ("tasks/get", "tasks/result", "tasks/list", "tasks/cancel"):
            with pytest.raises(Refused) as refused:
                await session.result(method, {"taskId": UNKNOWN})
            assert refused.value.code == -32601


async def test_updates_of_today_do_not_exist(session: Session) -> None:
    with pytest.raises(Refused) as refused:
        await session.result("tasks/update", {"taskId": UNKNOWN, "inputResponses": {}})
    assert refused.value.code == -32601


async def test_a_call_that_cannot_be_made_becomes_no_task(session: Session) -> None:
    impossible: tuple[Json, ...] = ({"name": "no-such-tool"}, {"name": "work", "arguments": {"n": 2**70}})
    for wanted in impossible:
        with pytest.raises(Refused) as refused:
            await session.result("tools/call", {**wanted, "task": {}})
        assert refused.value.code == -32602


@pytest.mark.must("L13")
async def test_a_task_is_told_flat(house: House, session: Session) -> None:
    task_id, task = await house.begun_in(session)
    told = await session.result("tasks/get", {"taskId": task_id})
    assert (told["taskId"], told["status"]) == (task_id, "working")
    assert told["ttl"] > 0
    assert told["pollInterval"] > 0
    task.complete("done")
    await until(house, task_id, "completed")
    ended = await session.result("tasks/get", {"taskId": task_id})
    assert ended["status"] == "completed"
    assert not {"result", "error", "task", "pollInterval"} & ended.keys()


@pytest.mark.must("L15")
@pytest.mark.must("L16")
@pytest.mark.must("L17")
@pytest.mark.must("L26")
async def test_the_result_is_waited_for_and_names_its_task(house: House, session: Session) -> None:
    task_id, task = await house.begun_in(session)
    waiting = asyncio.create_task(session.result("tasks/result", {"taskId": task_id}))
    assert (await session.result("tasks/get", {"taskId": task_id}))["status"] == "working"
    assert not waiting.done()
    task.complete("done")
    for result in (await waiting, await session.result("tasks/result", {"taskId": task_id})):
        assert result["content"] == [{"type": "text", "text": "done"}]
        assert result["isError"] is False
        assert result["_meta"][RELATED] == {"taskId": task_id}


@pytest.mark.must("L30")
async def test_a_result_that_is_an_error_fails_its_task_and_stays_a_result(house: House, session: Session) -> None:
    task_id, task = await house.begun_in(session)
    task.tell(status="completed", result={"content": [{"type": "text", "text": "no"}], "isError": True})
    result = await session.result("tasks/result", {"taskId": task_id})
    assert result["isError"] is True
    told = await session.result("tasks/get", {"taskId": task_id})
    assert told["status"] == "failed"
    assert told["statusMessage"]


@pytest.mark.must("L29")
async def test_an_error_of_the_upstreams_is_the_result_of_its_task(house: House, session: Session) -> None:
    task_id, task = await house.begun_in(session)
    task.tell(status="failed", error={"code": -32042, "message": "rate limit", "data": {"retry": True}})
    with pytest.raises(Refused) as refused:
        await session.result("tasks/result", {"taskId": task_id})
    assert (refused.value.code, refused.value.message, refused.value.data) == (-32042, "rate limit", {"retry": True})
    assert (await session.result("tasks/get", {"taskId": task_id}))["status"] == "failed"


@pytest.mark.must("L10")
@pytest.mark.must("L18")
@pytest.mark.must("L19")
@pytest.mark.requirement("R32")
@pytest.mark.requirement("R19")
async def test_a_question_comes_along_the_result_and_its_answer_reaches_the_tool(
    house: House, session: Session
) -> None:
    task_id, task = await house.begun_in(session, _meta={"ringback/correlationId": "c-1"})
    task.ask("sure")
    async with session.asking("tasks/result", {"taskId": task_id}) as frames:
        question = await frames.next("elicitation/create")
        assert question["params"]["message"] == QUESTION["params"]["message"]
        assert question["params"]["requestedSchema"] == QUESTION["params"]["requestedSchema"]
        assert question["params"]["_meta"][RELATED] == {"taskId": task_id}
        assert question["params"]["_meta"]["ringback/correlationId"] == "c-1"
        assert (await session.result("tasks/get", {"taskId": task_id}))["status"] == "input_required"
        await session.reply(question, YES)
        await house.tasks.until(lambda: task.answers == {"sure": YES})
        task.complete("thanks")
        assert (await frames.answer())["content"][0]["text"] == "thanks"


async def test_a_question_is_put_again_to_a_client_that_comes_back(house: House, session: Session) -> None:
    task_id, task = await house.begun_in(session)
    task.ask("sure")
    async with session.asking("tasks/result", {"taskId": task_id}) as lost:
        await lost.next("elicitation/create")
    async with session.asking("tasks/result", {"taskId": task_id}) as frames:
        await session.reply(await frames.next("elicitation/create"), YES)
        await house.tasks.until(lambda: task.answers == {"sure": YES})
        task.complete("thanks")
        await frames.answer()


@pytest.mark.requirement("R32")
async def test_a_question_that_is_answered_elsewhere_is_taken_back(house: House, session: Session) -> None:
    task_id, task = await house.begun_in(session)
    task.ask("sure")
    async with session.asking("tasks/result", {"taskId": task_id}) as frames:
        question = await frames.next("elicitation/create")
        modern = await house.modern()
        asked = (await modern.result("tasks/get", {"taskId": task_id}))["inputRequests"]
        await modern.result("tasks/update", {"taskId": task_id, "inputResponses": dict.fromkeys(asked, YES)})
        taken_back = await frames.next("notifications/cancelled")
        assert taken_back["params"]["requestId"] == question["id"]


async def test_a_question_that_the_client_refuses_stays_open_for_others(house: House, session: Session) -> None:
    task_id, task = await house.begun_in(session)
    task.ask("sure")
    async with session.asking("tasks/result", {"taskId": task_id}) as frames:
        await session.reply(await frames.next("elicitation/create"), {"nonsense": True})
        assert (await session.result("tasks/get", {"taskId": task_id}))["status"] == "input_required"
        task.complete("never mind")
        await frames.answer()


async def test_of_many_that_wait_for_one_task_the_oldest_gives_way(
    house: House, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legacy_questions, "WAITING_MAX", 1)
    task_id, task = await house.begun_in(session)
    task.ask("sure")
    async with (
        session.asking("tasks/result", {"taskId": task_id}) as older,
        session.asking("tasks/result", {"taskId": task_id}) as newer,
    ):
        await newer.next("elicitation/create")
        with pytest.raises(Refused, match="Newer") as refused:
            await older.answer()
        assert refused.value.code == -32603
        task.complete("done")
        await newer.answer()


@pytest.mark.must("L23")
@pytest.mark.must("L24")
async def test_a_cancelled_task_is_cancelled_when_that_is_answered(house: House, session: Session) -> None:
    task_id, task = await house.begun_in(session)
    cancelled = await session.result("tasks/cancel", {"taskId": task_id})
    assert (cancelled["taskId"], cancelled["status"]) == (task_id, "cancelled")
    await house.tasks.until(lambda: task.cancels == 1)
    for _ in range(2):
        with pytest.raises(Refused, match="cancelled") as refused:
            await session.result("tasks/cancel", {"taskId": task_id})
        assert refused.value.code == -32602


@pytest.mark.must("L09")
@pytest.mark.must("L25")
async def test_a_cancelled_task_stays_cancelled_when_its_tool_ends_all_the_same(house: House, session: Session) -> None:
    task_id, task = await house.begun_in(session)
    house.tasks.obeys = False
    try:
        await session.result("tasks/cancel", {"taskId": task_id})
        await house.tasks.until(lambda: task.cancels == 1)
    finally:
        house.tasks.obeys = True
    task.complete("done anyway")
    with pytest.raises(Refused) as refused:
        await session.result("tasks/result", {"taskId": task_id})
    assert (refused.value.code, refused.value.data) == (-32603, {"outcome": "cancelled"})
    assert (await session.result("tasks/get", {"taskId": task_id}))["status"] == "cancelled"


async def test_cancelling_stops_a_tool_that_runs_as_a_plain_request(house: House) -> None:
    async with house.session(upstream="plain") as session:
        created = await session.result("tools/call", {"name": "hold", "arguments": {}, "task": {}})
        await house.plain.until_inside(1)
        await session.result("tasks/cancel", {"taskId": created["task"]["taskId"]})
        await asyncio.wait_for(house.plain.cancelled.wait(), WAIT_SECONDS)


async def test_cancelling_reaches_a_task_of_an_upstream_of_the_same_generation(house: House) -> None:
    async with house.session(upstream="legacy") as session:
        created = await session.result("tools/call", {"name": "either", "arguments": {}, "task": {}})
        upstreams = await house.legacy.task()
        await house.legacy.until(lambda: upstreams.polls > 0)
        await session.result("tasks/cancel", {"taskId": created["task"]["taskId"]})
        await house.legacy.until(lambda: upstreams.cancels == 1)


async def test_cancelling_what_was_completed_is_refused(house: House, session: Session) -> None:
    task_id, task = await house.begun_in(session)
    task.complete("done")
    await session.result("tasks/result", {"taskId": task_id})
    with pytest.raises(Refused, match="completed") as refused:
        await session.result("tasks/cancel", {"taskId": task_id})
    assert refused.value.code == -32602


@pytest.mark.must("L27")
@pytest.mark.must("L31")
@pytest.mark.must("L33")
@pytest.mark.requirement("R25")
async def test_unknown_and_foreign_tasks_are_refused_in_the_same_words(house: House, session: Session) -> None:
    task_id, task = await house.begun_in(session)
    async with house.session("bob") as bob:
        for method in ("tasks/get", "tasks/result", "tasks/cancel"):
            words: set[str] = set()
            for wanted in (task_id, UNKNOWN, "nonsense"):
                with pytest.raises(Refused) as refused:
                    await bob.result(method, {"taskId": wanted})
                assert refused.value.code == -32602
                words.add(refused.value.message)
            assert len(words) == 1
    assert task.cancels == 0


@pytest.mark.must("L20")
async def test_which_task_is_meant_is_said_by_the_parameter_alone(house: House, session: Session) -> None:
    task_id, _ = await house.begun_in(session)
    about = {RELATED: {"taskId": UNKNOWN}}
    assert (await session.result("tasks/get", {"taskId": task_id, "_meta": about}))["taskId"] == task_id


@pytest.mark.must("L21")
@pytest.mark.must("L22")
@pytest.mark.must("L34")
async def test_the_list_has_all_tasks_of_the_caller_and_no_others(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(legacy_tasks, "PAGE", 2)
    async with house.session("carol", upstream="plain") as carol, house.session("dave", upstream="plain") as dave:
        mine = [
            (await carol.result("tools/call", {"name": "echo", "arguments": {}, "task": {}}))["task"]["taskId"]
            for _ in range(5)
        ]
        await dave.result("tools/call", {"name": "echo", "arguments": {}, "task": {}})
        listed: list[str] = []
        pages, cursor = 0, {}
        while True:
            page: Json = await carol.result("tasks/list", cursor)
            listed += [task["taskId"] for task in page["tasks"]]
            pages += 1
            if "nextCursor" not in page:
                break
            cursor = {"cursor": page["nextCursor"]}
        assert (sorted(listed), pages) == (sorted(mine), 3)


@pytest.mark.must("L28")
async def test_a_cursor_that_is_none_is_refused(session: Session) -> None:
    for cursor in ("nonsense", "", "x" * 1000):
        with pytest.raises(Refused) as refused:
            await session.result("tasks/list", {"cursor": cursor})
        assert refused.value.code == -32602


@pytest.mark.requirement("R20")
async def test_the_session_hears_of_its_tasks_and_of_their_progress_under_its_token(
    house: House, session: Session
) -> None:
    async with session.stream() as stream:
        task_id, task = await house.begun_in(session, _meta={"progressToken": "t-1"})
        task.tell(status="working", statusMessage="3 of 7 pages")
        progress = (await stream.next("notifications/progress"))["params"]
        assert (progress["progressToken"], progress["message"]) == ("t-1", "3 of 7 pages")
        assert progress["_meta"][RELATED] == {"taskId": task_id}
        task.complete("done")
        ended = await stream.next(STATUS, where=lambda told: told["status"] == "completed")
        assert ended["params"]["taskId"] == task_id
        assert "pollInterval" not in ended["params"]


async def test_a_task_outlives_the_session_that_made_it(house: House) -> None:
    async with house.session() as session:
        task_id, task = await house.begun_in(session)
    task.complete("done")
    await until(house, task_id, "completed")
    async with house.session() as another:
        result = await another.result("tasks/result", {"taskId": task_id})
    assert result["content"][0]["text"] == "done"
