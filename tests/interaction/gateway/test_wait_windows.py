"""How long a tools/call is held: as the URL says, shorter for a client that gave up, longer while progress arrives."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import mcp_types as types
import pytest
from mcp import Client
from mcp.server.lowlevel import Server
from mcp_types import INVALID_PARAMS

from ringback.bootstrap import Environment
from ringback.domain.call import Call
from ringback.domain.principal import Caller
from ringback.mcp_server import tool_call_responder
from ringback.mcp_server.tool_export import PENDING_KEY
from ringback.services.calls.calls import Calls
from tests.interaction.gateway.conftest import NO_CAPABILITIES, GatewayHarness, running_gateway
from tests.support.application import running_application
from tests.support.clock import StoppedDurations
from tests.support.engine import wait_until
from tests.support.mcp_wire import (
    Json,
    JsonRpcErrorResponse,
    LegacyClientSession,
    ModernClient,
    legacy_session,
)
from tests.support.upstreams import WAIT_SECONDS, App, Context, make_http_config, serving

UPSTREAMS: Final = ("paint",)

pytestmark = pytest.mark.requirement("R14")

AnyClient = ModernClient | LegacyClientSession
STEPPED_WINDOW_SECONDS: Final = 20.0
"""The window of the gateway whose upstream reports progress: less than half of the longest one."""
CLIENT_TIMEOUT_SECONDS: Final = 5.0
"""The time-out of many clients."""


async def call_tool(client: AnyClient, name: str, arguments: Json | None = None, **rest: Any) -> Json:
    declare: Any = {"declare": NO_CAPABILITIES} if isinstance(client, ModernClient) else {}
    return await client.request("tools/call", {"name": name, "arguments": arguments or {}, **rest}, **declare)


@pytest.fixture
def durations() -> StoppedDurations:
    return StoppedDurations()


@pytest.fixture
async def stopped_gate(
    tmp_path: Path, durations: StoppedDurations, monkeypatch: pytest.MonkeyPatch
) -> AsyncGenerator[GatewayHarness]:
    """A gateway whose windows end only when the test lets time pass."""
    monkeypatch.setattr(tool_call_responder, "STORED_PROGRESS_POLL_SECONDS", 0.01)
    async with running_gateway(tmp_path, only={"paint"}, environment=Environment(clock=durations)) as gate:
        yield gate


# -- ?wait= ----------------------------------------------------------------------------------------------------------------


async def test_a_url_with_wait_0_gets_pending_results_at_once(stopped_gate: GatewayHarness) -> None:
    async with stopped_gate.open_legacy_session(query="?wait=0") as session:
        for client in (await stopped_gate.make_modern_client(query="?wait=0"), session):
            pending = await asyncio.wait_for(call_tool(client, "wait"), WAIT_SECONDS)
            assert pending["structuredContent"][PENDING_KEY]["status"] == "working"
    stopped_gate.interop.release.set()


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_sdk_client_gets_a_pending_result_by_its_url_and_then_the_result(
    open_gate: GatewayHarness, mode: Any
) -> None:
    async with Client(f"{open_gate.url}/mcp/paint?wait=0", mode=mode) as client:
        pending = await client.call_tool("wait", {})
        assert pending.structured_content is not None
        call_id = pending.structured_content[PENDING_KEY]["call_id"]
        open_gate.interop.release.set()
        ended = await client.call_tool("ringback_wait_for_call", {"call_id": call_id, "wait_seconds": 60})

    assert [block.type for block in pending.content] == ["text"]
    assert (ended.is_error, ended.content[0].model_dump()["text"]) == (False, "held")
    open_gate.interop.reset()


@pytest.mark.parametrize("query", ["?wait=soon", "?wait=61", "?wait=1&wait=2"])
async def test_a_url_with_an_invalid_wait_is_refused_with_an_error_that_clients_show(
    gate: GatewayHarness, query: str
) -> None:
    """As a JSON-RPC error: clients show nothing of an HTTP 422."""
    modern = await gate.make_modern_client(query=query)
    initialize = gate.open_legacy_session(query=query).__aenter__
    for send in (partial(call_tool, modern, "count"), partial(modern.request, "server/discover", {}), initialize):
        with pytest.raises(JsonRpcErrorResponse, match=re.escape("for example ?wait=20")) as refused:
            await send()
        assert refused.value.code == INVALID_PARAMS
    assert "tools" in await modern.request("tools/list", {})


# -- clients that gave up --------------------------------------------------------------------------------------------------


async def give_up_modern(gate: GatewayHarness, durations: StoppedDurations, client: ModernClient) -> None:
    """Disconnect from a call of `wait` after `CLIENT_TIMEOUT_SECONDS`."""
    params: Json = {"name": "wait", "arguments": {}, "_meta": {"ringback/correlationId": "given-up"}}
    waiting = asyncio.create_task(client.request("tools/call", params, declare=NO_CAPABILITIES))
    await gate.interop.wait_until_held()
    durations.pass_time(CLIENT_TIMEOUT_SECONDS)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)

    async def is_unattended() -> bool:
        found = await gate.request_rest("GET", "/v1/calls?correlation_id=given-up")
        stored = await gate.ringback.app.store.read(lambda tx: tx.calls.get(found.json()["calls"][0]["id"]))
        return stored is not None and stored.attended_until is None

    await wait_until(is_unattended)


async def give_up_legacy(gate: GatewayHarness, durations: StoppedDurations, session: LegacyClientSession) -> None:
    """Cancel a call of `wait` after `CLIENT_TIMEOUT_SECONDS`."""
    async with session.open_request("tools/call", {"name": "wait", "arguments": {}}) as frames:
        await gate.interop.wait_until_held()
        durations.pass_time(CLIENT_TIMEOUT_SECONDS)
        await session.cancel_request(session.last_id)
        with pytest.raises(JsonRpcErrorResponse):
            await frames.read_response()


async def call_before_timeout(
    gate: GatewayHarness, durations: StoppedDurations, call: Awaitable[Json], is_waiting: Callable[[], Awaitable[None]]
) -> Json:
    """The response before the client gives up again; without a shorter window there is none."""
    calling = asyncio.ensure_future(call)
    await is_waiting()
    durations.pass_time(CLIENT_TIMEOUT_SECONDS)
    return await asyncio.wait_for(calling, WAIT_SECONDS)


async def test_a_modern_client_that_disconnected_gets_its_next_answer_before_it_would_again(
    stopped_gate: GatewayHarness, durations: StoppedDurations
) -> None:
    client = await stopped_gate.make_modern_client(name="hasty", query="?client_session_id=hasty")
    await give_up_modern(stopped_gate, durations, client)
    stopped_gate.interop.reset()

    pending = await call_before_timeout(
        stopped_gate, durations, call_tool(client, "wait"), stopped_gate.interop.wait_until_held
    )

    assert pending["structuredContent"][PENDING_KEY]["status"] == "working"
    stopped_gate.interop.release.set()


async def test_a_legacy_client_that_cancelled_gets_its_next_answers_before_it_would_again(
    stopped_gate: GatewayHarness, durations: StoppedDurations
) -> None:
    async with stopped_gate.open_legacy_session() as session:
        await give_up_legacy(stopped_gate, durations, session)
        stopped_gate.interop.reset()

        pending = await call_before_timeout(
            stopped_gate, durations, call_tool(session, "wait"), stopped_gate.interop.wait_until_held
        )

        assert pending["structuredContent"][PENDING_KEY]["status"] == "working"
        stopped_gate.interop.release.set()


async def test_a_client_that_gave_up_waiting_for_a_call_gets_the_next_wait_shorter(
    stopped_gate: GatewayHarness, durations: StoppedDurations, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: asyncio.Queue[float] = asyncio.Queue()
    get_call = Calls.get_call

    async def get_observed_call(calls: Calls, *args: Any, **options: Any) -> Any:
        if options.get("wait_seconds"):
            waits.put_nowait(options["wait_seconds"])
        return await get_call(calls, *args, **options)

    monkeypatch.setattr(Calls, "get_call", get_observed_call)
    async with stopped_gate.open_legacy_session(query="?wait=0") as session:
        call_id = (await call_tool(session, "wait"))["structuredContent"][PENDING_KEY]["call_id"]
        arguments = {"call_id": call_id, "wait_seconds": 30}
        params: Json = {"name": "ringback_wait_for_call", "arguments": arguments}
        async with session.open_request("tools/call", params) as frames:
            first_wait = await waits.get()
            durations.pass_time(CLIENT_TIMEOUT_SECONDS)
            await session.cancel_request(session.last_id)
            with pytest.raises(JsonRpcErrorResponse):
                await frames.read_response()
        calling = asyncio.create_task(call_tool(session, "ringback_wait_for_call", arguments))
        second_wait = await asyncio.wait_for(waits.get(), WAIT_SECONDS)
        stopped_gate.interop.release.set()
        ended = await calling

    assert ended["content"][0]["text"] == "held"
    assert (first_wait, second_wait) == (30, 0.6 * CLIENT_TIMEOUT_SECONDS)


# -- progress --------------------------------------------------------------------------------------------------------------


class SteppedUpstream:
    """A server whose tool `work` reports the progress that the test puts into `steps`, and ends at None."""

    def __init__(self) -> None:
        self.steps: asyncio.Queue[float | None] = asyncio.Queue()

    def app(self) -> App:
        return Server("stepped", on_list_tools=self._list, on_call_tool=self._call).streamable_http_app()

    async def _list(self, _context: Context, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[types.Tool(name="work", input_schema={"type": "object"})])

    async def _call(self, context: Context, _params: types.CallToolRequestParams) -> types.CallToolResult:
        while (progress := await self.steps.get()) is not None:
            await context.session.report_progress(progress)
        return types.CallToolResult(content=[types.TextContent(type="text", text="worked")])


@pytest.fixture
def checked_waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits for a change of a call so far; none changes here. The end of the window is checked after each."""
    waits: list[float] = []

    async def wait_without_change(_calls: Calls, _caller: Caller, call: Call, **options: Any) -> tuple[Call, None]:
        waits.append(options["wait_seconds"])
        await asyncio.sleep(0)
        return call, None

    monkeypatch.setattr(Calls, "wait_for_call", wait_without_change)
    return waits


@pytest.mark.parametrize("is_modern", [True, False])
@pytest.mark.parametrize(("name", "is_held"), [("opencode", True), ("claude-ai", False)])
async def test_progress_keeps_a_client_that_then_waits_longer_and_no_other(
    stepped_gate: tuple[SteppedUpstream, str],
    durations: StoppedDurations,
    checked_waits: list[float],
    *,
    name: str,
    is_held: bool,
    is_modern: bool,
) -> None:
    upstream, url = stepped_gate
    params: Json = {"name": "work", "arguments": {}, "_meta": {"progressToken": "p"}}
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx.AsyncClient(timeout=WAIT_SECONDS))
        if is_modern:
            opened = ModernClient(http, url, name=name).open_request("tools/call", params, declare=NO_CAPABILITIES)
        else:
            session = await stack.enter_async_context(legacy_session(http, url, client_name=name))
            opened = session.open_request("tools/call", params)
        frames = await stack.enter_async_context(opened)
        for progress in (1, 2):
            upstream.steps.put_nowait(progress)
            await frames.read_message("notifications/progress")
            durations.pass_time(0.75 * STEPPED_WINDOW_SECONDS)
        answer = asyncio.create_task(frames.read_response())

        checks = len(checked_waits)

        async def is_decided() -> bool:
            return answer.done() or len(checked_waits) > checks + 2

        await wait_until(is_decided)
        assert answer.done() is not is_held
        durations.pass_time(STEPPED_WINDOW_SECONDS)

        assert PENDING_KEY in (await answer)["structuredContent"]
    upstream.steps.put_nowait(None)


@pytest.mark.parametrize(
    ("mode", "tool"),
    [("legacy", "ringback_wait_for_call"), ("2026-07-28", "ringback_wait_for_call"), ("2026-07-28", "ringback_resume")],
)
async def test_a_client_that_waits_for_a_call_again_gets_its_progress(
    stepped_gate: tuple[SteppedUpstream, str], mode: Any, tool: str
) -> None:
    upstream, url = stepped_gate
    received: list[float] = []

    async def continue_work(progress: float, total: float | None, message: str | None) -> None:
        del total, message
        received.append(progress)
        upstream.steps.put_nowait(progress + 1 if progress < 3 else None)

    async with asyncio.timeout(WAIT_SECONDS), Client(f"{url}?wait=0", mode=mode) as client:
        pending = await client.call_tool("work", {})
        assert pending.structured_content is not None
        call_id = pending.structured_content[PENDING_KEY]["call_id"]
        known = {"call_id": call_id} if tool == "ringback_wait_for_call" else await issue_resume_token(url, call_id)
        upstream.steps.put_nowait(1)
        ended = await client.call_tool(tool, {**known, "wait_seconds": 60}, progress_callback=continue_work)

    assert ended.content[0].model_dump()["text"] == "worked"
    assert received == [1, 2, 3]


async def issue_resume_token(url: str, call_id: str) -> Json:
    """The arguments of `ringback_resume`, from the REST API of the gateway at this URL."""
    rest_url = f"{url.partition('/mcp')[0]}/v1"
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
        issued = await http.post(f"{rest_url}/calls/{call_id}/resume-token", json={})
    return {"resume_token": issued.json()["resume_token"]}


@pytest.fixture
async def stepped_gate(tmp_path: Path, durations: StoppedDurations) -> AsyncGenerator[tuple[SteppedUpstream, str]]:
    """An upstream that reports progress, and its URL at a gateway whose windows end only when the test lets time pass."""
    upstream = SteppedUpstream()
    async with (
        serving(upstream.app()) as server,
        running_application(
            tmp_path,
            make_http_config(server.url),
            auth="off",
            allowed_hosts=("127.0.0.1",),
            environment=Environment(clock=durations),
            inline_wait_seconds=STEPPED_WINDOW_SECONDS,
        ) as ringback,
        serving(ringback.app.api) as api,
    ):
        yield upstream, f"{api.url}/stage"
