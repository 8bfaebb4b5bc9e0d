"""`ringback mcp` as a process, used by a client that only starts commands."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import mcp_types as types
import pytest
from mcp import Client, StdioServerParameters
from mcp.client._transport import Transport

from ringback.domain.principal import Scope
from scripts.ports import free_port
from tests.support.api_server import serving_api
from tests.support.application import SECRET, running_application, serving_callbacks
from tests.support.forked_bridge import forked_bridge
from tests.support.forked_commands import running_forked_command
from tests.support.interop_upstream import InteropUpstream
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import ControlledUpstream, make_http_config, serving


@dataclass(frozen=True, slots=True)
class RunningBridge:
    url: str
    key: str

    folder: Path

    def make_environment(self, **environment: str) -> dict[str, str]:
        return {"RINGBACK_API_KEY": self.key, "PATH": os.environ["PATH"], **environment}

    def make_command(self) -> StdioServerParameters:
        return StdioServerParameters(
            command=sys.executable, args=["-m", "ringback", "mcp", "--url", self.url], env=self.make_environment()
        )

    def fork(self, *options: str, **environment: str) -> Transport:
        """The same command in a forked process. One client of this file starts a Python of its own."""
        return forked_bridge(
            "--url", self.url, *options, folder=self.folder, environment=self.make_environment(**environment)
        )


@pytest.fixture(scope="module")
async def running(module_path_factory: pytest.TempPathFactory) -> AsyncGenerator[RunningBridge]:
    async with (
        serving(ControlledUpstream().app()) as stage,
        serving(InteropUpstream().app()) as paint,
        running_application(
            folder := module_path_factory.mktemp("service"),
            make_http_config(stage.url),
            make_http_config(paint.url, name="paint"),
        ) as service,
        serving_api(service.app.api) as url,
    ):
        _, key = await service.app.services.api_keys.create_key(
            "alice", name="test", scopes=frozenset({Scope.CALLS, Scope.READ, Scope.WEBHOOKS}), upstreams=None
        )
        yield RunningBridge(url, key, folder)


async def open_client(
    server: StdioServerParameters | Transport, mode: Literal["legacy", "2026-07-28"]
) -> tuple[str, list[float]]:
    """All operations of a client through one process; returns the protocol version and the received progress."""
    progress_values: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        del total, message
        progress_values.append(progress)

    async def on_question(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        del context
        assert params.message == "Which colour?"
        return types.ElicitResult(action="accept", content={"colour": "blue"})

    async with (
        asyncio.timeout(WAIT_SECONDS),
        Client(server, mode=mode, elicitation_callback=on_question) as client,
    ):
        names = {tool.name for tool in (await client.list_tools()).tools}
        results = await asyncio.gather(*(client.call_tool("stage__echo", {"number": number}) for number in range(5)))
        await client.call_tool("stage__steps", {}, progress_callback=on_progress)
        failed = await client.call_tool("stage__fail", {})
        painted = await client.call_tool("paint__ask", {})
        version = client.protocol_version

    assert {"stage__echo", "paint__ask"} <= names
    assert [json.loads(result_text(result)) for result in results] == [{"number": number} for number in range(5)]
    assert failed.is_error
    assert result_text(painted) == "painted blue"
    return version, progress_values


def result_text(result: types.CallToolResult) -> str:
    (block,) = result.content
    assert isinstance(block, types.TextContent)
    return block.text


async def test_clients_of_both_eras_call_through_standard_input_and_output(running: RunningBridge) -> None:
    legacy, modern = await asyncio.gather(
        open_client(running.make_command(), "legacy"), open_client(running.fork(), "2026-07-28")
    )

    assert (legacy[0], modern[0]) == ("2025-11-25", "2026-07-28")
    assert 2 in legacy[1]
    assert 2 in modern[1]


async def test_a_bridge_leaves_nothing_open_that_python_would_warn_of() -> None:
    bridge = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "default::ResourceWarning", "-m", "ringback", "mcp", "--url", "http://127.0.0.1:1"),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
    )
    async with asyncio.timeout(WAIT_SECONDS):
        _, warned = await bridge.communicate()

    assert (bridge.returncode, warned.decode()) == (0, "")


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_options_set_what_the_client_cannot(
    running: RunningBridge, mode: Literal["legacy", "2026-07-28"]
) -> None:
    async with serving_callbacks() as receiver:
        bridge = running.fork(
            *("--client-session-id", f"härte {mode}", "--correlation-id", mode, "--callback-url", receiver.url),
            *("--wait", "0"),
            RINGBACK_CALLBACK_SECRET=SECRET,
        )
        async with asyncio.timeout(WAIT_SECONDS), Client(bridge, mode=mode) as client:
            result = await client.call_tool("stage__echo", {"text": "hello"})
            callback = await receiver.wait_for_callback(mode)

    assert result.structured_content is not None
    assert "ringback_pending" in result.structured_content
    assert callback.data["client_session_id"] == f"härte {mode}"
    assert callback.data["call_id"] == (result.meta or {})["ringback/callId"]


async def test_the_last_line_of_a_pipe_gets_its_response(running: RunningBridge, tmp_path: Path) -> None:
    greeting = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "pipe", "version": "1"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": greeting})
    environment = {**os.environ, "RINGBACK_API_KEY": running.key}
    async with (
        asyncio.timeout(WAIT_SECONDS),
        running_forked_command("mcp", "--url", running.url, folder=tmp_path, environment=environment) as process,
    ):
        out, _ = await process.communicate(f"{line}\n".encode())

    assert json.loads(out)["result"]["serverInfo"]["name"] == "ringback"
    assert process.returncode == 0


async def test_without_a_service_each_request_gets_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    lines: list[Any] = [
        {"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": {}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        "no JSON-RPC",
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    arguments = ("mcp", "--url", url, "--upstream", "git")
    async with (
        asyncio.timeout(WAIT_SECONDS),
        running_forked_command(*arguments, folder=tmp_path, environment=os.environ) as process,
    ):
        process.stdin.write("".join(f"{json.dumps(line)}\n" for line in lines).encode())
        answers = [json.loads(await process.stdout.readline()) for _ in range(3)]
        _, errors = await process.communicate()

    by_id = {answer["id"]: answer["error"] for answer in answers}
    assert set(by_id) == {"a", 2, None}
    for name in ("a", 2):
        assert f"is unreachable at {url}/mcp/git" in by_id[name]["message"]
        assert "ringback serve" in by_id[name]["message"]
    assert by_id[None]["code"] == -32700
    assert (process.returncode, errors) == (0, b"")


async def test_the_bridge_exits_when_standard_input_ends_while_it_waits_for_the_service(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}})
    async with (
        asyncio.timeout(WAIT_SECONDS),
        running_forked_command("mcp", "--url", url, folder=tmp_path, environment=os.environ) as process,
    ):
        out, errors = await process.communicate(f"{line}\n".encode())

    assert (process.returncode, out, errors) == (0, b"", b"")


async def test_the_process_ends_when_its_client_closes_standard_output_alone(tmp_path: Path) -> None:
    """It would stay for as long as another process holds the other end of its standard input."""
    arguments = ("mcp", "--url", "http://127.0.0.1:1")
    async with (
        asyncio.timeout(WAIT_SECONDS),
        running_forked_command(*arguments, folder=tmp_path, environment=os.environ) as process,
    ):
        process.close_stdout()
        process.stdin.write(b"no message\n")
        assert await process.wait() == 0
