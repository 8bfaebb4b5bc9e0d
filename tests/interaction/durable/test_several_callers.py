"""Several callers on one state, as processes that know nothing of each other: one of them sends, and none sends twice."""

import asyncio
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest

from ringback.client.durable import (
    CallHandle,
    CallNotStarted,
    DurableCaller,
    DurableCallError,
    InputRequired,
    MemoryRequestState,
    NotRejoinable,
    SQLiteRequestState,
    StoredState,
)
from ringback.client.durable.clock import SystemDurableClock
from tests.support.limits import WAIT_SECONDS
from tests.support.task_upstream import ACCEPTED_ANSWER, TaskUpstream, text_result
from tests.support.upstreams import ControlledUpstream, HttpServer, serving

FAR = 32_503_680_000.0


class ClockAhead(SystemDurableClock):
    """A minute ahead: by then, a process that has not renewed its lease counts as dead."""

    def now(self) -> float:
        return time.time() + 60  # noqa: TID251 - the clock of this test


class SharedMemory(MemoryRequestState):
    """Stands for a state that processes share. Fails from the write with this number on, as the writes of a dead process do."""

    is_shared = True
    writes_left = 10**9

    async def write(self, state: StoredState, *, replaces: str | None) -> bool:
        if self.writes_left == 0:
            raise RuntimeError("this process is dead")
        self.writes_left -= 1
        return await super().write(state, replaces=replaces)


class RepeatingMemory(MemoryRequestState):
    """Repeats the writes with these numbers, as a client of Redis does whose connection broke before the response."""

    def __init__(self, *numbers: int) -> None:
        super().__init__()
        self._numbers = numbers
        self._writes = 0

    async def write(self, state: StoredState, *, replaces: str | None) -> bool:
        self._writes += 1
        written = await super().write(state, replaces=replaces)
        return await super().write(state, replaces=replaces) if self._writes in self._numbers else written


@pytest.fixture
def upstream() -> TaskUpstream:
    return TaskUpstream()


@pytest.fixture
async def server(upstream: TaskUpstream) -> AsyncGenerator[HttpServer]:
    async with serving(upstream.app()) as server, asyncio.timeout(WAIT_SECONDS):
        yield server


@pytest.mark.requirement("R05")
async def test_a_request_whose_process_died_before_it_sent_it_has_not_run_and_may_be_repeated(
    server: HttpServer, upstream: TaskUpstream
) -> None:
    state = SharedMemory()
    state.writes_left = 1  # the record; the next write would precede the request
    async with DurableCaller(server.url, state=state) as dead:
        with pytest.raises(RuntimeError):
            await dead.request_call_tool("work", idempotency_key="k1", start_timeout_seconds=WAIT_SECONDS)
    state.writes_left = 100
    assert upstream.side_effects == []

    async with DurableCaller(server.url, state=state, clock=ClockAhead()) as other:
        (found,) = await other.list_calls()
        assert found.status == "starting"
        with pytest.raises(CallNotStarted, match="has not run"):
            await other.join_call_tool(found.handle)
        handle = await other.request_call_tool("work", idempotency_key="k1", start_timeout_seconds=WAIT_SECONDS)
        assert (handle.id, handle.kind) == (found.handle.id, "task")
    assert upstream.side_effects == ["work"]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
async def test_a_call_is_sent_also_if_the_state_does_not_recognise_its_own_repeated_write(
    server: HttpServer, upstream: TaskUpstream, number: int
) -> None:
    async with DurableCaller(server.url, state=RepeatingMemory(number)) as caller:
        handle = await caller.request_call_tool("work", start_timeout_seconds=WAIT_SECONDS)

        assert handle.kind == "task"
        upstream.tasks[next(iter(upstream.tasks))].complete_task("done")
        assert await caller.join_call_tool(handle) == text_result("done")
    assert upstream.side_effects == ["work"]


async def test_two_callers_with_one_idempotency_key_start_one_call(server: HttpServer, upstream: TaskUpstream) -> None:
    state = SharedMemory()
    async with DurableCaller(server.url, state=state) as first, DurableCaller(server.url, state=state) as second:
        handles = await asyncio.gather(
            *(
                caller.request_call_tool("work", idempotency_key="k1", start_timeout_seconds=WAIT_SECONDS)
                for caller in (first, second, first, second)
            )
        )
    assert len({handle.id for handle in handles}) == 1
    assert upstream.side_effects == ["work"]


async def test_two_callers_that_join_an_answered_call_send_its_round_once(
    server: HttpServer, upstream: TaskUpstream
) -> None:
    state = SharedMemory()
    async with DurableCaller(server.url, state=state) as first, DurableCaller(server.url, state=state) as second:
        handle = await first.request_call_tool("confirm", accepts_input=True, start_timeout_seconds=WAIT_SECONDS)
        with pytest.raises(InputRequired):
            await first.join_call_tool(handle)
        await second.answer_call_tool(handle, {"sure": ACCEPTED_ANSWER})
        results = await asyncio.gather(first.join_call_tool(handle), second.join_call_tool(handle))

    assert results[0] == results[1] is not None
    assert upstream.side_effects == ["confirm"]
    assert upstream.count_requests("tools/call") == 2


class RegionUpstream(TaskUpstream):
    """Its tool `confirm` wants an argument in a header of the request, too."""

    async def _list(self, names: list[str]) -> types.ListToolsResult:
        schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
        return types.ListToolsResult(tools=[types.Tool(name=name, input_schema=schema) for name in names])


async def test_a_round_that_another_caller_sends_has_the_headers_of_the_tool() -> None:
    upstream, state = RegionUpstream(), SharedMemory()
    app = upstream.app()
    regions: list[bytes | None] = []

    async def record_header(scope: Any, receive: Any, send: Any) -> None:
        headers = dict(scope.get("headers", ()))
        if headers.get(b"mcp-method") == b"tools/call":
            regions.append(headers.get(b"mcp-param-region"))
        await app(scope, receive, send)

    async with (
        asyncio.timeout(WAIT_SECONDS),
        serving(record_header) as server,
        DurableCaller(server.url, state=state) as first,
        DurableCaller(server.url, state=state) as second,
    ):
        handle = await first.request_call_tool(
            "confirm", {"region": "eu"}, accepts_input=True, start_timeout_seconds=WAIT_SECONDS
        )
        with pytest.raises(InputRequired):
            await first.join_call_tool(handle)
        await second.answer_call_tool(handle, {"sure": ACCEPTED_ANSWER})
        await second.join_call_tool(handle)

    assert regions == [b"eu", b"eu"]


async def test_a_caller_that_is_gone_is_noticed_by_its_lease() -> None:
    upstream, state = ControlledUpstream(), SharedMemory()
    async with (
        asyncio.timeout(WAIT_SECONDS),
        serving(upstream.app()) as server,
        DurableCaller(server.url, state=state) as caller,
        DurableCaller(server.url, state=state, clock=ClockAhead()) as other,
    ):
        handle = await caller.request_call_tool("hold")
        await upstream.wait_until_held(1)
        with pytest.raises(NotRejoinable, match="The tool may have run"):
            await other.join_call_tool(handle)


async def test_a_handle_survives_json_and_is_refused_by_another_target(server: HttpServer) -> None:
    async with DurableCaller(server.url) as caller:
        handle = await caller.request_call_tool("work", client_session_id="s1", start_timeout_seconds=WAIT_SECONDS)
    assert CallHandle.model_validate_json(handle.model_dump_json()) == handle
    async with DurableCaller("http://127.0.0.1:1/mcp") as other:
        with pytest.raises(ValueError, match="The handle is of http"):
            await other.join_call_tool(handle)


async def test_a_target_is_named_without_its_secrets() -> None:
    caller: Any = DurableCaller("https://user:secret@mcp.example/mcp?token=secret#secret")
    assert caller._target.url == "https://mcp.example/mcp"


async def test_a_state_of_a_newer_version_is_not_misread(server: HttpServer) -> None:
    state = SharedMemory()
    await state.write(StoredState(key="req_1", version="v1", text='{"version": 2}', expires_at=FAR), replaces=None)
    async with DurableCaller(server.url, state=state) as caller:
        with pytest.raises(DurableCallError, match="written by a newer one"):
            await caller.join_call_tool("req_1")


async def test_a_call_is_joined_by_its_id_alone(server: HttpServer, upstream: TaskUpstream, tmp_path: Path) -> None:
    path = tmp_path / "calls.db"
    async with DurableCaller(server.url, state=SQLiteRequestState(path)) as caller:
        handle = await caller.request_call_tool("work", start_timeout_seconds=WAIT_SECONDS)
        (await upstream.wait_for_task(1)).complete_task("done")
        assert await caller.join_call_tool(handle.id) == text_result("done")


async def test_a_callback_of_a_call_without_a_ringback_is_refused(server: HttpServer) -> None:
    async with DurableCaller(server.url) as caller:
        with pytest.raises(ValueError, match="needs a Ringback"):
            await caller.request_call_tool("work", callback={"url": "https://agent.example"})
        with pytest.raises(ValueError, match="behind a Ringback"):
            await caller.request_call_tool("work", upstream="git")


async def test_a_url_with_a_path_is_an_mcp_server_and_the_refusal_names_the_target_for_a_ringback_there() -> None:
    async with DurableCaller("https://user:secret@tools.example/ringback", api_key="rbk_key") as caller:
        with pytest.raises(ValueError, match="This target is an MCP server itself") as without_upstreams:
            await caller.request_call_tool("work", upstream="git")
        with pytest.raises(ValueError, match="This target is an MCP server itself") as without_callbacks:
            await caller.request_call_tool("work", callback={"url": "https://agent.example"})

    advice = "DurableCaller(RingbackTarget('https://tools.example/ringback', api_key=…))"
    assert advice in str(without_upstreams.value)
    assert advice in str(without_callbacks.value)


async def test_joins_that_wait_end_when_their_caller_is_closed(server: HttpServer) -> None:
    caller = DurableCaller(server.url)
    handle = await caller.request_call_tool("work", start_timeout_seconds=WAIT_SECONDS)
    waiting = [asyncio.create_task(caller.join_call_tool(handle)) for _ in range(3)]
    for _ in range(3):
        await asyncio.sleep(0)
    await caller.aclose()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    assert [str(each) for each in ended] == [
        "This caller stopped waiting for the call: it was closed, or forgot the call."
    ] * 3


@pytest.mark.parametrize("url", ["python server.py", "mcp.example/mcp"])
def test_a_target_is_a_url(url: str) -> None:
    with pytest.raises(ValueError, match="http"):
        DurableCaller(url)
