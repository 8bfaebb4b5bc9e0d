"""`kill -9` of the service, or of the client, with `ringback mcp` between them: the client notices nothing but a pause.

    client ──stdio──▶ ringback mcp ──HTTP──▶ Ringback ──HTTP──▶ upstream
                                             kill -9, and again on the same database

One client of each era is connected, each through a bridge of its own.
"""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import httpx
import mcp_types as types
import pytest
from mcp import Client, MCPError
from mcp.shared.exceptions import MCPDeprecationWarning

from scripts.ports import free_port
from tests.support.forked_bridge import forked_bridge
from tests.support.forked_commands import running_forked_command
from tests.support.legacy_upstream import LegacyUpstream
from tests.support.processes import WAIT_SECONDS, ServiceProcess, running_process
from tests.support.upstreams import STDIO_SERVER, Receive, Scope, Send, serving

Mode = Literal["legacy", "2026-07-28"]
MODES: Final[tuple[Mode, ...]] = ("legacy", "2026-07-28")
INLINE_WAIT_SECONDS: Final = 45.0
"""Longer than the service takes to find a call again, so that the repeated request returns the result."""
BRIDGE: Final = ("-m", "ringback", "mcp", "--upstream", "stage", "--url")


@dataclass(slots=True)
class BridgedClient:
    client: Client
    updated: asyncio.Event = field(default_factory=asyncio.Event)
    """Set after a notification that a resource was updated."""


@asynccontextmanager
async def connected_clients(url: str, folder: Path) -> AsyncGenerator[dict[Mode, BridgedClient]]:
    clients: dict[Mode, BridgedClient] = {}
    async with AsyncExitStack() as stack:
        for mode in MODES:
            client = Client(
                forked_bridge("--upstream", "stage", "--url", url, folder=folder),
                mode=mode,
                message_handler=lambda message, mode=mode: observe(clients[mode], message),
            )
            clients[mode] = BridgedClient(client)
            await stack.enter_async_context(client)
        yield clients


async def observe(client: BridgedClient, message: object) -> None:
    if isinstance(message, types.ResourceUpdatedNotification):
        client.updated.set()


async def for_both(clients: dict[Mode, BridgedClient], work: Callable[[BridgedClient], Awaitable[Any]]) -> list[Any]:
    async with asyncio.timeout(WAIT_SECONDS):
        return list(await asyncio.gather(*(work(client) for client in clients.values())))


async def wait_for_calls(running: ServiceProcess, *, with_progress: bool) -> list[dict[str, Any]]:
    """Wait until both calls have been dispatched; `with_progress`, until the service has stored that they run."""
    async with httpx.AsyncClient(base_url=running.url, timeout=WAIT_SECONDS) as http, asyncio.timeout(WAIT_SECONDS):
        while True:
            calls: list[dict[str, Any]] = (await http.get("/v1/calls")).json()["calls"]
            if len(calls) == len(MODES) and all(call["progress"] or not with_progress for call in calls):
                return calls
            await asyncio.gather(*(http.get(f"/v1/calls/{call['id']}", params={"wait_seconds": 1}) for call in calls))


def make_spec(folder: Path, upstream: str, **spec: Any) -> dict[str, Any]:
    return {"folder": str(folder), "upstream": upstream, "port": free_port(), **spec}


@pytest.mark.requirement("R09")
@pytest.mark.requirement("R35")
async def test_the_same_client_gets_the_result_of_its_call_which_ran_once(tmp_path: Path) -> None:
    stage = LegacyUpstream()
    async with serving(stage.app()) as upstream, AsyncExitStack() as services:
        spec = make_spec(tmp_path, upstream.url, inline_wait_seconds=INLINE_WAIT_SECONDS)
        doomed = await services.enter_async_context(running_process(**spec))
        async with connected_clients(doomed.url, tmp_path) as clients:
            calling = asyncio.create_task(for_both(clients, lambda each: each.client.call_tool("work", {"n": 1})))
            await wait_for_calls(doomed, with_progress=True)
            await doomed.kill()
            stage.release.set()
            revived = await services.enter_async_context(running_process(**spec))
            results = await calling
            calls = await wait_for_calls(revived, with_progress=False)

    assert [json.loads(result.content[0].text) for result in results] == [{"n": 1}] * 2
    assert stage.effects == ["work"] * 2
    assert [(call["outcome"], call["runs"]) for call in calls] == [("result", 1)] * 2


@pytest.mark.requirement("R33")
@pytest.mark.requirement("R35")
async def test_a_call_whose_server_died_with_the_service_is_reported_as_unknown(tmp_path: Path) -> None:
    spec = make_spec(tmp_path, f"{sys.executable} {STDIO_SERVER}", inline_wait_seconds=INLINE_WAIT_SECONDS)

    async def hold(each: BridgedClient) -> types.ErrorData:
        with pytest.raises(MCPError) as failed:
            await each.client.call_tool("hold", {}, progress_callback=ignore_progress)
        return failed.value.error

    async with AsyncExitStack() as services:
        doomed = await services.enter_async_context(running_process(**spec))
        async with connected_clients(doomed.url, tmp_path) as clients:
            calling = asyncio.create_task(for_both(clients, hold))
            await wait_for_calls(doomed, with_progress=True)
            await doomed.kill()
            revived = await services.enter_async_context(running_process(**spec))
            errors = await calling
            calls = await wait_for_calls(revived, with_progress=False)

    assert [error.data["outcome"] for error in errors] == ["unknown"] * 2
    assert [(call["outcome"], call["runs"]) for call in calls] == [("unknown", 1)] * 2


async def ignore_progress(progress: float, total: float | None, message: str | None) -> None:
    del progress, total, message


@pytest.mark.requirement("R35")
async def test_subscriptions_report_a_result_that_arrived_while_the_service_was_down(tmp_path: Path) -> None:
    stage = LegacyUpstream()

    async def watch(each: BridgedClient, is_watching: asyncio.Event) -> dict[str, Any]:
        """Call a tool, watch the pending call until something changes, and read it."""
        result = await each.client.call_tool("work", {})
        uri = f"ringback://calls/{(result.meta or {})['ringback/callId']}"
        if each.client.protocol_version == "2026-07-28":
            async with each.client.listen(resource_subscriptions=[uri]) as subscription:
                is_watching.set()
                await anext(subscription)
        else:
            with pytest.warns(MCPDeprecationWarning):
                await each.client.subscribe_resource(uri)  # pyright: ignore[reportDeprecated] - legacy
            is_watching.set()
            await each.updated.wait()
        return await read_until_ended(each.client, uri)

    async with serving(stage.app()) as upstream, AsyncExitStack() as services:
        spec = make_spec(tmp_path, upstream.url, inline_wait_seconds=0.0)
        doomed = await services.enter_async_context(running_process(**spec))
        async with connected_clients(doomed.url, tmp_path) as clients, asyncio.timeout(WAIT_SECONDS):
            subscribed = [asyncio.Event() for _ in clients]
            async with asyncio.TaskGroup() as group:
                pairs = zip(clients.values(), subscribed, strict=True)
                watchers = [group.create_task(watch(*pair)) for pair in pairs]
                await asyncio.gather(*(each.wait() for each in subscribed))
                await wait_for_calls(doomed, with_progress=True)
                await doomed.kill()
                stage.release.set()
                await services.enter_async_context(running_process(**spec))

    assert [each.result()["status"] for each in watchers] == ["completed"] * 2


async def read_until_ended(client: Client, uri: str) -> dict[str, Any]:
    """Read the call's resource; the first news may come before the service has found the result again."""
    while True:
        (content,) = (await client.read_resource(uri)).contents
        assert isinstance(content, types.TextResourceContents)
        call: dict[str, Any] = json.loads(content.text)
        if call["status"] != "working":
            return call
        await client.call_tool("ringback_wait_for_call", {"call_id": uri.rpartition("/")[2]})


# -- the end of the client ----------------------------------------------------------------------------------------------------


class SessionRecorder:
    """A legacy service that only begins and ends sessions."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.ended = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = (await receive()).get("body", b"")
        message: dict[str, Any] = json.loads(body) if body else {}
        if scope["method"] == "DELETE":
            self.ended.set()
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
        is_request = "id" in message
        headers = [(b"content-type", b"application/json"), (b"mcp-session-id", b"s1")]
        status = 405 if scope["method"] == "GET" else 200 if is_request else 202
        response = {"jsonrpc": "2.0", "id": message.get("id"), "result": result}
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(response).encode() if is_request else b""})
        if message.get("method") == "notifications/initialized":
            self.began.set()


INITIALIZE: Final[dict[str, Any]] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "client", "version": "1"},
    },
}
INITIALIZED: Final = {"jsonrpc": "2.0", "method": "notifications/initialized"}
CLIENT: Final = """
import subprocess, sys
initialize, initialized, *command = sys.argv[1:]
bridge = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
bridge.stdin.write(f"{initialize}\\n".encode())
bridge.stdin.flush()
bridge.stdout.readline()
bridge.stdin.write(f"{initialized}\\n".encode())
bridge.stdin.flush()
print(bridge.pid, flush=True)
bridge.wait()
"""
"""A program that starts the end of its arguments as an MCP server, begins a session, and prints the server's process id."""


@dataclass(frozen=True, slots=True)
class RunningClient:
    process: Process
    bridge_ended: Awaitable[None]


@asynccontextmanager
async def running_client(url: str) -> AsyncGenerator[RunningClient]:
    """A client that has begun a session through a bridge."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", CLIENT, json.dumps(INITIALIZE), json.dumps(INITIALIZED)),
        *(sys.executable, *BRIDGE, url),
        stdout=PIPE,
    )
    assert process.stdout is not None
    bridge = os.pidfd_open(int(await asyncio.wait_for(process.stdout.readline(), WAIT_SECONDS)))
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_reader(bridge, lambda: ended.done() or ended.set_result(None))
    try:
        yield RunningClient(process, ended)
    finally:
        asyncio.get_running_loop().remove_reader(bridge)
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(bridge, signal.SIGKILL)
        os.close(bridge)
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("end", ["the client is killed", "SIGTERM", "SIGINT"])
async def test_the_end_of_the_client_ends_the_bridge_and_its_session(tmp_path: Path, end: str) -> None:
    service = SessionRecorder()
    async with asyncio.timeout(WAIT_SECONDS), serving(service) as server:
        url = server.url.removesuffix("/mcp")
        if end == "the client is killed":
            async with running_client(url) as client:
                await service.began.wait()
                client.process.kill()
                await client.bridge_ended
        else:  # as clients do that do not close standard input
            await signal_bridge(signal.Signals[end], url, tmp_path, service)
        await service.ended.wait()


async def signal_bridge(number: signal.Signals, url: str, folder: Path, service: SessionRecorder) -> None:
    """Begin a session through a bridge, send it this signal, and wait for its end."""
    async with running_forked_command(
        "mcp", "--upstream", "stage", "--url", url, folder=folder, environment=os.environ
    ) as bridge:
        bridge.stdin.write(f"{json.dumps(INITIALIZE)}\n{json.dumps(INITIALIZED)}\n".encode())
        await service.began.wait()
        bridge.send_signal(number)
        await bridge.wait()
