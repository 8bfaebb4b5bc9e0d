"""The calls that a DurableCaller lists: how long it keeps them, and what it shows of each."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from ringback.client.durable import DurableCaller, MemoryRequestState, SQLiteRequestState, StoredState, UnknownHandle
from tests.support.mocked_durable_callers import CALL, create_caller, start_or_read
from tests.support.plain_durable_callers import FastClock


async def test_a_list_of_many_calls_in_memory_lets_other_tasks_run_between_its_pages(caller: DurableCaller) -> None:
    for _ in range(40):
        await caller.request_call_tool("echo", upstream="git")
    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    await asyncio.sleep(0)
    before = turns
    listed = await caller.list_calls()
    counting.cancel()

    assert (len(listed), turns > before) == (40, True)


@pytest.mark.parametrize(("options", "limit_days"), [({"timeout_seconds": 30 * 86_400}, 30), ({}, 7)])
async def test_a_call_is_kept_for_a_week_after_its_time_limit(options: dict[str, Any], limit_days: int) -> None:
    """It was kept for a week from its request, though the service's time limit alone is a week, and a month at most."""
    days = 0
    state = MemoryRequestState(now=lambda: FastClock().now() + 86_400 * days)
    async with create_caller(start_or_read, state) as caller:
        handle = await caller.request_call_tool("git_log", upstream="git", **options)
        days = limit_days + 6
        assert [call.handle.id for call in await caller.list_calls()] == [handle.id]
        days = limit_days + 8
        assert await caller.list_calls() == []


async def test_a_join_of_a_call_whose_state_has_expired_starts_nothing_and_says_where_the_result_is(
    tmp_path: Path,
) -> None:
    days, starts = 0, 0

    def respond(request: httpx.Request) -> httpx.Response:
        nonlocal starts
        starts += request.url.path == "/v1/calls"
        return start_or_read(request)

    state = SQLiteRequestState(tmp_path / "calls.db", now=lambda: FastClock().now() + 86_400 * days)
    async with state, create_caller(respond, state) as caller:
        handle = await caller.request_call_tool("git_log", upstream="git")
        days = 15
        with pytest.raises(UnknownHandle, match=rf"has expired.*result\('{CALL['id']}'\)"):
            await caller.join_call_tool(handle)

    assert starts == 1


async def test_a_listed_call_has_the_ids_of_its_request() -> None:
    async with create_caller(start_or_read) as caller:
        await caller.request_call_tool(
            "git_log", {"repo_path": "."}, upstream="git", client_session_id="s1", correlation_id="c1"
        )
        (listed,) = await caller.list_calls()

    assert (listed.client_session_id, listed.correlation_id) == ("s1", "c1")


async def test_a_state_that_cannot_be_read_hides_no_other(caplog: pytest.LogCaptureFixture) -> None:
    state = MemoryRequestState()
    async with create_caller(start_or_read, state) as caller:
        handle = await caller.request_call_tool("git_log", {"repo_path": "."}, upstream="git")
        newer = StoredState(key="req_0", version="1", text='{"format": 99}', expires_at=2**40)
        assert await state.write(newer, replaces=None)
        assert [call.handle.id for call in await caller.list_calls()] == [handle.id]
    assert "The state req_0 is not one of this version" in caplog.text
