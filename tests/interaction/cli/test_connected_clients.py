"""Clients whose files `ringback connect` has written: each starts the command of its file and finds the tools that it had."""

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp.client._transport import Transport
from typer.testing import CliRunner

from ringback.cli.app import app
from ringback.cli.embedded_service.paths import ServicePaths, find_paths
from ringback.cli.embedded_service.runtime_file import read_running_service
from ringback.cli.file_locks import is_locked
from ringback.domain.principal import ALL_SCOPES
from ringback.upstreams.config import UpstreamEntry
from ringback.upstreams.config.loader import load_upstreams
from tests.support.api_server import serving_api
from tests.support.application import running_application
from tests.support.forked_bridge import forked_bridge
from tests.support.limits import WAIT_SECONDS
from tests.support.upstreams import ControlledUpstream, serving, wait_until_true


class Home:
    """A user of Cursor, Windsurf and Claude Desktop on Linux."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = {
            "cursor": folder / ".cursor" / "mcp.json",
            "windsurf": folder / ".codeium" / "windsurf" / "mcp_config.json",
            "claude-desktop": folder / "config" / "Claude" / "claude_desktop_config.json",
        }
        folders = {f"XDG_{name}_HOME": str(folder / name.lower()) for name in ("CONFIG", "STATE")}
        self.environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "STAGE_TOKEN": "t", **folders}
        self.paths = find_paths(folders)

    def write(self, client: str, entries: dict[str, object]) -> None:
        self.files[client].parent.mkdir(parents=True)
        self.files[client].write_text(f'{{"mcpServers": {json.dumps(entries)} }}')

    def read_files(self) -> dict[str, bytes]:
        return {client: file.read_bytes() for client, file in self.files.items() if file.exists()}

    async def connect(self, client: str, *options: str) -> None:
        """Run the command in this process: another one would import for a second."""
        arguments = ["connect", client, *options]
        ended = await asyncio.to_thread(CliRunner().invoke, app, arguments, env=self.environment)
        assert ended.exit_code == 0, ended.output

    def read_command(self, client: str, name: str) -> StdioServerParameters:
        entry = json.loads(self.files[client].read_text())["mcpServers"][name]
        environment = self.environment | entry.get("env", {})
        return StdioServerParameters(command=entry["command"], args=entry["args"], env=environment)

    def fork(self, command: StdioServerParameters) -> Transport:
        """The command `… mcp …` in a forked process. One client of this file starts a Python of its own."""
        options = command.args[command.args.index("mcp") + 1 :]
        return forked_bridge(*options, folder=self.folder, environment=command.env)


async def kill_service(paths: ServicePaths) -> None:
    if (running := read_running_service(paths)) is not None:
        os.kill(running.pid, signal.SIGKILL)
        await wait_until_true(lambda: not is_locked(paths.lock))


async def test_connected_clients_find_their_tools_and_a_running_service_learns_of_later_ones(tmp_path: Path) -> None:
    home, stage = Home(tmp_path), ControlledUpstream()
    async with serving(stage.app()) as upstream, asyncio.timeout(2 * WAIT_SECONDS):
        home.write("cursor", {"My Stage": {"url": upstream.url, "headers": {"X-Token": "${env:STAGE_TOKEN}"}}})
        home.write("windsurf", {"other": {"serverUrl": upstream.url}})
        before = home.read_files()
        try:
            await home.connect("cursor", "--write")
            started = home.read_command("cursor", "My Stage")
            async with Client(started, mode="legacy") as client:
                first = await client.call_tool("echo", {"text": "first"})
                await home.connect("windsurf", "--write")
                command = home.read_command("windsurf", "other")
                async with Client(home.fork(command), mode="legacy") as later:
                    second = await later.call_tool("echo", {"text": "second"})
            for name in before:
                await home.connect(name, "--undo")
        finally:
            await kill_service(home.paths)

    assert [first.is_error, second.is_error] == [False, False]
    assert command.command == started.command
    assert home.read_files() == before


async def test_a_client_that_only_starts_commands_calls_through_a_service_that_the_user_keeps_running(
    tmp_path: Path,
) -> None:
    home, stage, config = Home(tmp_path), ControlledUpstream(), tmp_path / "service.json"

    def read_configs() -> Sequence[UpstreamEntry]:
        return load_upstreams(config, {}).configs if config.exists() else ()

    async with (
        asyncio.timeout(2 * WAIT_SECONDS),
        serving(stage.app()) as upstream,
        running_application(tmp_path, read_configs=read_configs) as service,
        serving_api(service.app.api) as url,
    ):
        _, key = await service.app.services.api_keys.create_key("ada", name="t", scopes=ALL_SCOPES, upstreams=None)
        home.write("claude-desktop", {"stage": {"url": upstream.url}})
        before = home.read_files()
        await home.connect(
            "claude-desktop", "--write", "--url", f"{url}/mcp", "--config", str(config), "--api-key", key
        )
        async with Client(home.fork(home.read_command("claude-desktop", "stage")), mode="legacy") as client:
            result = await client.call_tool("echo", {"text": "through the service"})
        (call,) = [each async for each in (await service.client(api_key=key)).calls()]
        await home.connect("claude-desktop", "--undo")

    assert not result.is_error
    assert (call.upstream, call.tool, call.outcome) == ("stage", "echo", "result")
    assert read_running_service(home.paths) is None, "the bridge uses the service of --url, and starts none"
    assert home.read_files() == before
