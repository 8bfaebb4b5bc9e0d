"""`kill -9` of the service while a legacy client waits: its session goes on, and its next look finds the result."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client import streamable_http

from scripts.ports import free_port
from tests.support.legacy_upstream import LegacyUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.mcp_wire import Json, JsonRpcMessages, LegacyClientSession, legacy_session
from tests.support.processes import ServiceProcess, running_process
from tests.support.upstreams import serving

pytestmark = [pytest.mark.requirement("R09"), pytest.mark.requirement("R35")]

PATIENT: Final = {"inline_wait_seconds": 40.0}
HASTY: Final = {"inline_wait_seconds": 0.05}


@dataclass(slots=True)
class KillableService:
    stage: LegacyUpstream
    spec: dict[str, Any]

    @asynccontextmanager
    async def running(self, **changed: Any) -> AsyncGenerator[ServiceProcess]:
        """A process at the same address as the one before."""
        async with running_process(**self.spec, **changed) as running:
            yield running

    async def wait_until_resumable(self, url: str) -> None:
        """Wait until the call has reported progress: then its place at the upstream is stored."""
        async with httpx.AsyncClient(base_url=url, timeout=WAIT_SECONDS) as http, asyncio.timeout(WAIT_SECONDS):
            while True:
                calls = (await http.get("/v1/calls")).json()["calls"]
                if calls and (await http.get(f"/v1/calls/{calls[0]['id']}?wait_seconds=1")).json()["progress"]:
                    return


@pytest.fixture
async def service(tmp_path: Path) -> AsyncGenerator[KillableService]:
    stage = LegacyUpstream()
    async with serving(stage.app()) as upstream:
        yield KillableService(stage, {"folder": str(tmp_path), "upstream": upstream.url, "port": free_port()})


async def test_the_sdk_client_gets_the_result_of_its_waiting_call(
    service: KillableService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client notices nothing: it reconnects by itself, and neither initializes nor calls again."""
    monkeypatch.setattr(streamable_http, "MAX_RECONNECTION_ATTEMPTS", 100)  # a busy machine starts a service slowly
    async with asyncio.timeout(3 * WAIT_SECONDS):
        async with service.running(**PATIENT) as doomed:
            url = f"{doomed.url}/mcp/stage"
            client = await Client(url, mode="legacy").__aenter__()
            waiting = asyncio.create_task(client.call_tool("work", {}))
            await service.wait_until_resumable(doomed.url)
            await doomed.kill()
        service.stage.release.set()
        async with service.running(**PATIENT):
            result = await waiting
            tools = await client.list_tools()
            await client.__aexit__(None, None, None)
    assert result.model_dump()["content"][0]["text"] == "{}"
    assert "work" in {tool.name for tool in tools.tools}
    assert service.stage.effects == ["work"]


async def test_a_modern_sdk_client_gets_an_error_for_its_waiting_call_and_its_next_look_is_true(
    service: KillableService,
) -> None:
    """The SDK ends a client whose request breaks before its response began; Ringback begins it when the client has to wait."""
    stream_opened = asyncio.Event()

    async def note_stream(response: httpx2.Response) -> None:
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            stream_opened.set()

    http = httpx2.AsyncClient(timeout=WAIT_SECONDS, event_hooks={"response": [note_stream]})
    async with asyncio.timeout(3 * WAIT_SECONDS):
        async with service.running(**PATIENT) as doomed:
            transport = streamable_http.streamable_http_client(f"{doomed.url}/mcp/stage", http_client=http)
            client = await Client(transport, mode="2026-07-28").__aenter__()
            waiting = asyncio.create_task(client.call_tool("work", {}))
            await asyncio.gather(stream_opened.wait(), service.wait_until_resumable(doomed.url))
            await doomed.kill()
            with pytest.raises(MCPError, match="SSE stream ended"):
                await waiting
        service.stage.release.set()
        async with service.running(**PATIENT):
            looked = await client.call_tool("ringback_list_calls", {"tool": "work"})
            content: Any = looked.structured_content
            (found,) = content["calls"]
            waited = await client.call_tool("ringback_wait_for_call", {"call_id": found["call_id"], "wait_seconds": 30})
            await client.__aexit__(None, None, None)
            await http.aclose()  # the SDK does not close a client that it was given
    assert (waited.structured_content or {})["outcome"] == "result"
    assert service.stage.effects == ["work"]


async def wait_as_tool(session: LegacyClientSession, call_id: str) -> Json:
    arguments = {"call_id": call_id, "wait_seconds": 30}
    result = await session.request("tools/call", {"name": "ringback_wait_for_call", "arguments": arguments})
    return dict(result["structuredContent"])


async def wait_for_task(session: LegacyClientSession, call_id: str) -> Json:
    return {"result": await session.request("tasks/result", {"taskId": call_id})}


async def read_resource(session: LegacyClientSession, call_id: str) -> Json:
    await wait_for_task(session, call_id)
    read = await session.request("resources/read", {"uri": f"ringback://calls/{call_id}"})
    body: Json = httpx.Response(200, text=read["contents"][0]["text"]).json()
    return body


@pytest.mark.parametrize("look", [wait_as_tool, wait_for_task, read_resource])
async def test_the_next_look_in_the_same_session_finds_the_result(service: KillableService, look: Any) -> None:
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
        async with service.running(**HASTY) as doomed:
            opened = legacy_session(http, f"{doomed.url}/mcp/stage")
            session = await opened.__aenter__()
            pending = await session.request("tools/call", {"name": "work", "arguments": {}})
            call_id = pending["_meta"]["ringback/callId"]
            await service.wait_until_resumable(doomed.url)
            waiting = asyncio.create_task(look(session, call_id))
            await service.stage.wait_until(lambda: service.stage.effects)
            await doomed.kill()
            with pytest.raises((httpx.TransportError, AssertionError)):
                await waiting
        service.stage.release.set()
        async with service.running(**HASTY):
            seen = await look(session, call_id)
            await opened.__aexit__(None, None, None)
    assert seen["result"]["content"][0]["text"] == "{}"
    assert service.stage.effects == ["work"]


async def test_a_lost_stream_is_resumed_after_the_kill(service: KillableService) -> None:
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
        async with service.running(**PATIENT) as doomed:
            opened = legacy_session(http, f"{doomed.url}/mcp/stage")
            session = await opened.__aenter__()
            body: Json = {
                "jsonrpc": "2.0",
                "id": 5,
                "method": "tools/call",
                "params": {"name": "work", "arguments": {}},
            }
            async with http.stream("POST", session.url, json=body, headers=session.headers) as response:
                lines = response.aiter_lines()
                while not (line := await anext(lines)).startswith("id: "):
                    pass
                await service.wait_until_resumable(doomed.url)
                await doomed.kill()
        service.stage.release.set()
        async with service.running(**PATIENT):
            headers = {**session.headers, "last-event-id": line.removeprefix("id: ")}
            async with http.stream("GET", session.url, headers=headers) as response:
                result = await JsonRpcMessages(response).read_response()
            await opened.__aexit__(None, None, None)
    assert result["content"][0]["text"] == "{}"
    assert service.stage.effects == ["work"]


async def test_a_session_whose_client_got_no_response_to_initialize_harms_nobody(service: KillableService) -> None:
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
        async with service.running(unit="McpSessions.open_session", after=True) as doomed:
            with pytest.raises((httpx.TransportError, AssertionError)):
                await legacy_session(http, f"{doomed.url}/mcp/stage").__aenter__()
            assert await doomed.wait_until_dead() == -9
        async with (
            service.running() as revived,
            legacy_session(http, f"{revived.url}/mcp/stage") as session,
        ):
            assert (await session.request("tools/list", {}))["tools"]


async def test_a_session_that_was_ended_right_before_the_kill_stays_ended(service: KillableService) -> None:
    async with httpx.AsyncClient(timeout=WAIT_SECONDS) as http:
        async with service.running() as doomed:
            async with legacy_session(http, f"{doomed.url}/mcp/stage") as session:
                headers = dict(session.headers)
            await doomed.kill()
        async with service.running():
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
            assert (await http.post(session.url, json=body, headers=headers)).status_code == 404
