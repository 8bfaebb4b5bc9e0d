"""MCP servers that are commands, called without a service in between."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ringback.client.durable import (
    CallFailed,
    CallHandle,
    CallNotStarted,
    DurableCaller,
    DurableCallError,
    McpCommandTarget,
    NotRejoinable,
    SQLiteRequestState,
)
from ringback.client.models import InputRequest, Progress
from tests.support import asking_stdio_upstream, stdio_upstream, task_keeping_stdio_upstream
from tests.support.durable_calls import TIME_LIMIT_SECONDS, DeadlineClock, request_call
from tests.support.limits import WAIT_SECONDS

SERVER = Path(stdio_upstream.__file__)
ASKING_SERVER = Path(asking_stdio_upstream.__file__)
TASK_KEEPING_SERVER = Path(task_keeping_stdio_upstream.__file__)


def create_caller(folder: Path, *args: str, **options: Any) -> DurableCaller:
    target = McpCommandTarget(sys.executable, [str(SERVER), *args], **options)
    return DurableCaller(target, state=SQLiteRequestState(folder / "calls.db"))


async def test_a_command_runs_one_call_and_ends_with_it(tmp_path: Path) -> None:
    async with asyncio.timeout(WAIT_SECONDS), create_caller(tmp_path, env={"GREETING": "hello"}) as caller:
        handle = await request_call(caller, "whoami")
        result = await caller.join_call_tool(handle)

    assert result is not None
    child = json.loads(result["content"][0]["text"])
    assert child["environment"]["GREETING"] == "hello"
    with pytest.raises(ProcessLookupError):
        os.kill(child["pid"], 0)
    assert handle.target.startswith("stdio:python")
    assert str(SERVER) not in handle.model_dump_json()


async def test_a_running_command_says_that_no_other_process_can_join(tmp_path: Path) -> None:
    seen: asyncio.Queue[Progress] = asyncio.Queue()
    async with asyncio.timeout(WAIT_SECONDS):
        async with create_caller(tmp_path) as caller:
            handle = await request_call(caller, "hold")
            assert (handle.kind, handle.rejoinable) == ("plain", False)
            joining = asyncio.create_task(caller.join_call_tool(handle, on_progress=seen.put))
            assert (await seen.get()).message == "inside"
        with pytest.raises(DurableCallError, match="stopped waiting"):
            await joining
        async with create_caller(tmp_path) as other:
            with pytest.raises(NotRejoinable, match="The tool may have run"):
                await other.join_call_tool(handle)


async def test_a_call_of_a_command_that_must_be_rejoinable_is_not_sent(tmp_path: Path) -> None:
    async with asyncio.timeout(WAIT_SECONDS), create_caller(tmp_path) as caller:
        with pytest.raises(NotRejoinable, match="The tool was not called"):
            await request_call(caller, "whoami", cancel_if_not_resumable=True)


async def test_a_command_that_dies_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    async with asyncio.timeout(WAIT_SECONDS), create_caller(tmp_path) as caller:
        handle = await request_call(caller, "die")
        with pytest.raises(CallFailed) as failed:
            await caller.join_call_tool(handle)

    assert failed.value.outcome == "unknown"


async def test_a_command_that_cannot_be_started_starts_nothing(tmp_path: Path) -> None:
    caller = DurableCaller(McpCommandTarget(str(tmp_path / "missing")))
    async with asyncio.timeout(WAIT_SECONDS), caller:
        with pytest.raises(CallNotStarted, match="cannot be started"):
            await request_call(caller, "whoami")


async def test_a_call_of_a_command_whose_time_is_over_ends_with_its_process(tmp_path: Path) -> None:
    clock, seen = DeadlineClock(), asyncio.Queue[Progress]()
    caller = DurableCaller(McpCommandTarget(sys.executable, [str(SERVER)]), clock=clock)
    async with asyncio.timeout(WAIT_SECONDS), caller:
        handle = await request_call(caller, "hold", timeout_seconds=TIME_LIMIT_SECONDS)
        joining = asyncio.create_task(caller.join_call_tool(handle, on_progress=seen.put))
        await seen.get()
        clock.has_expired.set()
        with pytest.raises(CallFailed) as failed:
            await joining

    assert failed.value.outcome == "timed_out"


async def test_a_question_of_a_command_is_answered(tmp_path: Path) -> None:
    async def agree(_handle: CallHandle, request: InputRequest) -> Mapping[str, Any]:
        return {"action": "accept", "content": {"asked": request.params["message"]}}

    target = McpCommandTarget(sys.executable, [str(ASKING_SERVER)], answer_input=agree)
    async with asyncio.timeout(WAIT_SECONDS), DurableCaller(target) as caller:
        result = await caller.join_call_tool(await request_call(caller, "ask", {"question": "Really?"}))

    assert result is not None
    assert json.loads(result["content"][0]["text"]) == {"action": "accept", "content": {"asked": "Really?"}}


async def test_tasks_that_a_command_keeps_are_joined_by_another_process_of_it(tmp_path: Path) -> None:
    server = [str(TASK_KEEPING_SERVER), str(tmp_path / "tasks.json")]

    def create_task_caller() -> DurableCaller:
        target = McpCommandTarget(sys.executable, server, keeps_tasks=True)
        return DurableCaller(target, state=SQLiteRequestState(tmp_path / "calls.db"))

    async with asyncio.timeout(WAIT_SECONDS):
        async with create_task_caller() as caller:
            handle = await request_call(caller, "work")
        assert (handle.kind, handle.rejoinable) == ("legacy_task", True)
        async with create_task_caller() as caller:
            result = await caller.join_call_tool(handle)

    assert result == {"content": [{"type": "text", "text": "kept"}]}
